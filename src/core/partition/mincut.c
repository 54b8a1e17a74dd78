/* Minimum cuts by maximum flows (Dinic): each node is two vertices, in and out, with an edge of its cost between them. Levels come from a
 * breadth-first search, then flow is augmented along them. The searches keep their own stacks, because networks may be deep.
 */
#include "core/partition/mincut.h"

#include <stdlib.h>

enum { SOURCE = 0, SINK = 1, FIRST = 2 };

static uint32_t
in_of(uint32_t node)
{
    return FIRST + 2 * node;
}

static uint32_t
out_of(uint32_t node)
{
    return FIRST + 2 * node + 1;
}

static void
push(kin_mincut *m, uint32_t from, uint32_t to, int64_t room)
{
    if (m->failed || kin_vec_push(&m->edges, ((kin_mincut_edge){to, room})) != KIN_OK || kin_vec_push(&m->next, m->first[from]) != KIN_OK) {
        m->failed = true;
        return;
    }
    m->first[from] = m->edges.len;
}

static void
connect(kin_mincut *m, uint32_t from, uint32_t to, int64_t room)
{
    push(m, from, to, room);
    push(m, to, from, 0);
}

bool
kin_mincut_init(kin_mincut *m, uint32_t n, const int64_t *costs)
{
    uint32_t vertices = FIRST + 2 * n;
    *m = (kin_mincut){.n = n, .first = calloc(vertices, sizeof *m->first), .level = calloc(vertices, sizeof *m->level),
                      .at = calloc(vertices, sizeof *m->at)};
    if (m->first == NULL || m->level == NULL || m->at == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++)
        connect(m, in_of(i), out_of(i), costs[i]);
    return !m->failed;
}

void
kin_mincut_deinit(kin_mincut *m)
{
    kin_vec_deinit(&m->edges);
    kin_vec_deinit(&m->next);
    free(m->first);
    free(m->level);
    free(m->at);
}

void
kin_mincut_flow(kin_mincut *m, uint32_t from, uint32_t to)
{
    connect(m, out_of(from), in_of(to), KIN_MINCUT_NEVER);
}

void
kin_mincut_source(kin_mincut *m, uint32_t node, int64_t most)
{
    if (most > 0)
        connect(m, SOURCE, in_of(node), most);
}

void
kin_mincut_sink(kin_mincut *m, uint32_t node)
{
    connect(m, out_of(node), SINK, KIN_MINCUT_NEVER);
}

/* Levels of what can still be reached from the source, counted from 1; is the sink among it? */
static bool
find_levels(kin_mincut *m, uint32_t *queue)
{
    uint32_t head = 0, tail = 0;
    memset(m->level, 0, (FIRST + 2 * m->n) * sizeof *m->level);
    m->level[SOURCE] = 1;
    queue[tail++] = SOURCE;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t e = m->first[v]; e != 0; e = m->next.at[e - 1]) {
            uint32_t to = m->edges.at[e - 1].to;
            if (m->edges.at[e - 1].room > 0 && m->level[to] == 0) {
                m->level[to] = m->level[v] + 1;
                queue[tail++] = to;
            }
        }
    }
    return m->level[SINK] != 0;
}

/* The edge on which a path from v goes on towards the sink; 0: none does. */
static uint32_t
step_on(kin_mincut *m, uint32_t v)
{
    for (uint32_t *e = &m->at[v]; *e != 0; *e = m->next.at[*e - 1]) {
        const kin_mincut_edge *edge = &m->edges.at[*e - 1];
        if (edge->room > 0 && m->level[edge->to] == m->level[v] + 1)
            return *e;
    }
    return 0;
}

/* One path along the levels, filled; what flows. 0: there is none left. */
static int64_t
augment(kin_mincut *m, uint32_t *path)
{
    uint32_t n = 0, v = SOURCE;
    while (v != SINK) {
        uint32_t e = step_on(m, v);
        if (e != 0) {
            path[n++] = e - 1;
            v = m->edges.at[e - 1].to;
        } else if (n == 0)
            return 0;
        else { /* a dead end */
            m->level[v] = 0;
            v = m->edges.at[path[--n] ^ 1].to;
        }
    }
    int64_t flow = KIN_MINCUT_NEVER;
    for (uint32_t i = 0; i < n; i++)
        flow = m->edges.at[path[i]].room < flow ? m->edges.at[path[i]].room : flow;
    for (uint32_t i = 0; i < n; i++) {
        m->edges.at[path[i]].room -= flow;
        m->edges.at[path[i] ^ 1].room += flow;
    }
    return flow;
}

/* Who can still reach the sink: level 1. The edges between the others and these are the cut nearest to the sink. */
static void
find_behind(kin_mincut *m, uint32_t *queue)
{
    uint32_t head = 0, tail = 0;
    memset(m->level, 0, (FIRST + 2 * m->n) * sizeof *m->level);
    m->level[SINK] = 1;
    queue[tail++] = SINK;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t e = m->first[v]; e != 0; e = m->next.at[e - 1]) {
            uint32_t from = m->edges.at[e - 1].to;
            if (m->edges.at[(e - 1) ^ 1].room > 0 && m->level[from] == 0) {
                m->level[from] = 1;
                queue[tail++] = from;
            }
        }
    }
}

kin_status
kin_mincut_find(kin_mincut *m, bool *cut)
{
    uint32_t vertices = FIRST + 2 * m->n;
    uint32_t *list = malloc(vertices * sizeof *list);
    if (list == NULL || m->failed) {
        free(list);
        return KIN_NOMEM;
    }
    int64_t flow = 0;
    while (flow < KIN_MINCUT_NEVER && find_levels(m, list)) {
        int64_t more;
        memcpy(m->at, m->first, vertices * sizeof *m->at);
        while (flow < KIN_MINCUT_NEVER && (more = augment(m, list)) > 0)
            flow += more;
    }
    find_behind(m, list);
    for (uint32_t i = 0; i < m->n; i++)
        cut[i] = m->level[in_of(i)] == 0 && m->level[out_of(i)] != 0;
    free(list);
    return flow < KIN_MINCUT_NEVER ? KIN_OK : KIN_BREAK;
}
