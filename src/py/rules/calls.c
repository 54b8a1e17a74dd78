/* The handlers of calls, in the order in which they are tried. The first that accepts the call ends the search; a call that
 * none accepts is an opaque step.
 */
#include "py/iterators/iterators.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/rules/rules.h"
#include "py/torchcalls/torchcalls.h"

const rec_call_row rec_call_rows[] = {
    {REC_OF_ALL, rec_call_report},
    {REC_OF_FUNCTIONS, rec_call_profiler_range},
    {REC_OF_FUNCTIONS, rec_call_optimizer},
    {REC_OF_FUNCTIONS, rec_call_pure_operator},
    {REC_OF_ALL, rec_call_override},
    {REC_OF_ALL, rec_call_torch},
    {REC_OF_FUNCTIONS, rec_generator_call},
    {REC_OF_FUNCTIONS, rec_call_environ},
    {REC_OF_FUNCTIONS, rec_call_signature},
    {REC_OF_FUNCTIONS, rec_call_namedtuple},
    {REC_OF_FUNCTIONS, rec_call_update_wrapper},
    {REC_OF_FUNCTIONS, rec_call_deepcopy},
    {REC_OF_FUNCTIONS, rec_call_inlined},
    {REC_OF_CONSTANTS, rec_call_number},
    {REC_OF_CONSTANTS, rec_consume_call},
    {REC_OF_CONSTANTS, rec_call_constructor},
    {REC_OF_CONSTANTS, rec_call_builtin},
    {REC_OF_CONSTANTS, rec_call_class},
    {REC_OF_OTHERS, rec_call_getter},
    {REC_OF_OTHERS, rec_call_partial},
    {REC_OF_OTHERS, rec_call_weakref},
    {REC_OF_OTHERS, rec_call_instance},
    {0, NULL},
};
