/* Minimum cuts of networks whose nodes have a cost (mincut.c). */
#ifndef KIN_PARTITION_MINCUT_H
#define KIN_PARTITION_MINCUT_H

#include <stdbool.h>

#include "core/base/status.h"
#include "core/base/vec.h"

/* More than any sum of costs: such a node is never cut. */
#define KIN_MINCUT_NEVER ((int64_t)1 << 60)

typedef struct {
    uint32_t to;
    int64_t room; /* what may still flow along it; the edge back is its neighbour, number ^ 1 */
} kin_mincut_edge;

typedef struct {
    uint32_t n;                       /* nodes, numbered from 0 */
    KIN_VEC(kin_mincut_edge) edges;
    KIN_VEC(uint32_t) next;           /* by edge: the next one of its vertex + 1 */
    uint32_t *first;                  /* by vertex: an edge + 1 */
    uint32_t *level, *at;             /* by vertex, of the search at hand */
    bool failed;
} kin_mincut;

/* n nodes, node i cut for costs[i]. False without memory. */
bool kin_mincut_init(kin_mincut *m, uint32_t n, const int64_t *costs);
void kin_mincut_deinit(kin_mincut *m);
/* What reaches `from` goes on to `to`. */
void kin_mincut_flow(kin_mincut *m, uint32_t from, uint32_t to);
/* Up to `most` flows in at `node`, which costs so much where it is cut; flows out. */
void kin_mincut_source(kin_mincut *m, uint32_t node, int64_t most);
void kin_mincut_sink(kin_mincut *m, uint32_t node);
/* cut[i]: the nodes of the cheapest cut between sources and sinks; of several, the one nearest to the sinks. KIN_BREAK: there is
 * none without a node that is never cut. */
kin_status kin_mincut_find(kin_mincut *m, bool *cut) KIN_MUST_CHECK;

#endif
