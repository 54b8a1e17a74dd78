/* Status codes shared by every layer, and the macro that passes a failure up.
 *
 * Every function that can fail returns kin_status. KIN_BREAK and KIN_NOMEM are ordinary outcomes: the caller
 * stops what it was building and the user's call runs eagerly. KIN_BUG means that one of our own invariants
 * did not hold; the attempt is dropped and an event is recorded. KIN_PYERR is used under src/py only and means
 * that a Python exception is set.
 */
#ifndef KIN_BASE_STATUS_H
#define KIN_BASE_STATUS_H

typedef enum { KIN_OK = 0, KIN_BREAK, KIN_NOMEM, KIN_BUG, KIN_PYERR } kin_status;

#define KIN_MUST_CHECK __attribute__((warn_unused_result))

#define KIN_TRY(call)                          \
    do {                                       \
        kin_status kin_try_status_ = (call);   \
        if (kin_try_status_ != KIN_OK)         \
            return kin_try_status_;            \
    } while (0)

#endif
