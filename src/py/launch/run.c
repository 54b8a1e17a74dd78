/* Runs a compiled program on the tensors of a call (launch_priv.h). */
#include "py/launch/launch_priv.h"

kin_launch
launch_run(launch_version *version, const kin_unit *unit, PyObject *const *in, PyObject **out)
{
    return KIN_LAUNCH_NOT;
}
