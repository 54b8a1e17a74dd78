/* Was this memory written to? Packed weights and everything else computed from a tensor's data are valid only as long as
 * nobody writes to the tensor, and not every write is announced (numpy views, C code, the storage). The kernel knows:
 * pages can be write-protected so that the first write to each is noted without a signal (userfaultfd in asynchronous
 * mode, PAGEMAP_SCAN; Linux 6.7 and later). Small pieces, and the parts of a large one that do not fill a page, are
 * compared with a copy.
 *
 *     kin_track *t = kin_track_new(&why);                                 NULL: no memory
 *     kin_write_watch *w = kin_watch_new(t, data, bytes, bytes, &why);    NULL: this memory cannot be watched
 *     ... compute something from data ...
 *     if (kin_watch_changed(w)) ... compute it again, from the current data
 *
 * A change is reported to every watch once, whoever asked first. Asking re-arms the watch *before* the
 * caller reads the data, so no write is lost. Watches do not keep memory alive, and may be asked only while there is
 * memory at their address; if it was released and other memory is there now, that is a change. After fork()
 * everything counts as changed in the child.
 * The kernel does not watch memory that other processes can write to (shared mappings, files), and no page for two trackers at once: a process has one.
 */
#ifndef KIN_TRACK_TRACK_H
#define KIN_TRACK_TRACK_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"
#include "core/diag/text.h"

typedef struct kin_track kin_track;
typedef struct kin_write_watch kin_write_watch;
typedef struct kin_watch_group kin_watch_group;

/* `why` (may be NULL here and below) says what the kernel lacks; contents can be compared all the same. NULL without memory. */
kin_track *kin_track_new(kin_text *why);
/* Only after all watches are freed. */
void kin_track_free(kin_track *t);
/* Does the kernel help, or are contents compared only? */
bool kin_track_has_kernel(const kin_track *t);

/* Its contents at this moment are what "unchanged" means. What the kernel does not watch is compared, up to `most_compared` bytes; NULL: it is larger (`why`
 * says why the kernel does not), or there is no memory. */
kin_write_watch *kin_watch_new(kin_track *t, const void *data, size_t bytes, size_t most_compared, kin_text *why);
void kin_watch_free(kin_write_watch *w);
bool kin_watch_changed(kin_write_watch *w);

/* Many watches asked at once: memory that lies together costs one system call (94 MB in 150 pieces: 15 us instead of
 * 140). `watches` is copied; they are still the caller's, and freed after the group. NULL without memory. */
kin_watch_group *kin_watch_group_new(kin_track *t, kin_write_watch *const *watches, unsigned n);
void kin_watch_group_free(kin_watch_group *g);
/* How many changed; which[i] (n of them, may be NULL) says whether watches[i] did. */
unsigned kin_watch_group_changed(kin_watch_group *g, bool *which);

#endif
