/* Does a class still have the contents that it had under an earlier version tag?
 *
 * A tag changes with every store to the class or to one of its bases, even if the store is undone: torch.fx, and so every
 * backend that traces with it, replaces `Module.__call__` for a while, and all module classes get new tags. So the contents of a class are
 * recorded when it is first relied on, and compared when its tag has changed.
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
