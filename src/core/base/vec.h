/* Growable arrays for any element type.
 *
 *     KIN_VEC(uint32_t) v = {0};
 *     if (kin_vec_push(&v, 7u) != KIN_OK) ...
 *     for (uint32_t i = 0; i < v.len; i++) use(v.at[i]);
 *     kin_vec_deinit(&v);
 *
 * A zeroed vector is a valid empty one. Growth doubles; a failed growth leaves the vector as it was.
 */
#ifndef KIN_BASE_VEC_H
#define KIN_BASE_VEC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"

#define KIN_VEC(T)         \
    struct {               \
        T *at;             \
        uint32_t len, cap; \
    }

/* Makes room for `more` further elements of `size` bytes; returns KIN_NOMEM when it cannot. */
static inline kin_status
kin_vec_grow_raw(void **at, uint32_t len, uint32_t *cap, uint32_t more, size_t size)
{
    if (*cap - len >= more)
        return KIN_OK;
    uint64_t want = *cap ? (uint64_t)*cap * 2 : 8;
    while (want < (uint64_t)len + more)
        want *= 2;
    if (want > UINT32_MAX)
        return KIN_NOMEM;
    void *grown = realloc(*at, (size_t)want * size);
    if (grown == NULL)
        return KIN_NOMEM;
    *at = grown;
    *cap = (uint32_t)want;
    return KIN_OK;
}

#define kin_vec_reserve(v, more) \
    kin_vec_grow_raw((void **)&(v)->at, (v)->len, &(v)->cap, (more), sizeof *(v)->at)

/* Gives back the room for elements that are not there. */
static inline void
kin_vec_trim_raw(void **at, uint32_t len, uint32_t *cap, size_t size)
{
    if (len == *cap || len == 0)
        return;
    void *smaller = realloc(*at, (size_t)len * size);
    if (smaller == NULL)
        return;
    *at = smaller;
    *cap = len;
}

#define kin_vec_trim(v) kin_vec_trim_raw((void **)&(v)->at, (v)->len, &(v)->cap, sizeof *(v)->at)

/* Both are expressions of type kin_status. Without room `value` is not evaluated. */
#define kin_vec_push(v, value) \
    (kin_vec_reserve((v), 1) == KIN_OK ? ((v)->at[(v)->len++] = (value), KIN_OK) : KIN_NOMEM)

/* `more` elements behind the others; they may be some of the vector's own, which move when it grows. */
static inline kin_status
kin_vec_append_raw(void **at, uint32_t *len, uint32_t *cap, const void *from, uint32_t more, size_t size)
{
    const char *first = *at, *given = from;
    bool inside = first != NULL && given >= first && given < first + (size_t)*len * size;
    size_t offset = inside ? (size_t)(given - first) : 0;
    if (kin_vec_grow_raw(at, *len, cap, more, size) != KIN_OK)
        return KIN_NOMEM;
    if (more > 0)
        memcpy((char *)*at + *len * size, inside ? (char *)*at + offset : given, more * size);
    *len += more;
    return KIN_OK;
}

#define kin_vec_append(v, from, more) \
    kin_vec_append_raw((void **)&(v)->at, &(v)->len, &(v)->cap, (1 ? (from) : (v)->at), (more), sizeof *(v)->at)

#define kin_vec_deinit(v) (free((v)->at), (v)->at = NULL, (v)->len = (v)->cap = 0)

#endif
