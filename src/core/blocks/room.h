/* How much more memory may this process use before something has to be released? */
#ifndef KIN_BLOCKS_ROOM_H
#define KIN_BLOCKS_ROOM_H

#include <stdint.h>

/* Bytes: what the system could hand out (MemAvailable), or what limits of control groups (versions 1 and 2, at each level) leave, if
 * that is less. UINT64_MAX: nothing is known. Reads a few small files, 50-100 us. `root`: "", or for tests a folder that has proc
 * and sys of its own. */
uint64_t kin_memory_room(const char *root);

#endif
