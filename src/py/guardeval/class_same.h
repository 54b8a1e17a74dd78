/* Does a class still say what it said when it had an earlier version tag?
 *
 * A tag changes with every store to the class or to one of its bases, even when the store is undone: torch.fx, and with it every
 * backend that traces, replaces `Module.__call__` for a while, and all classes of modules get new tags. So when a class is first relied
 * upon its contents are noted; where a tag differs later they are compared.
 */
#ifndef KIN_PY_CLASS_SAME_H
#define KIN_PY_CLASS_SAME_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* The class is relied upon with its present tag. Best effort: what cannot be noted is only the same while the tag is. */
void kin_class_note(PyTypeObject *type);
/* Is all that lookups in the class find what they found when its tag was `tag`? Runs no Python code, allocates nothing. */
bool kin_class_is_same(PyTypeObject *type, uint32_t tag);

#endif
