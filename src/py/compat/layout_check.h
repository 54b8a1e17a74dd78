/* Does the interpreter that loads the extension lay out frames as the headers it was built with say? */
#ifndef KIN_PY_LAYOUT_CHECK_H
#define KIN_PY_LAYOUT_CHECK_H

#include <stdbool.h>

/* False and ImportError: the extension was built for another minor version. Called before anything else. */
bool kin_layout_is_this_version(void);
/* With the GIL, called from running Python code. False and ImportError: nothing may be recorded here. */
bool kin_layout_check(void);

#endif
