/* A warning handler as torch's C++ code expects it (warn.h): an object whose first word points to its virtual methods,
 * two destructors and `process`, in the order of the platform's C++ ABI.
 */
#include "py/aten/warn.h"

#include "py/aten/tensor_priv.h"

static struct {
    void (*set)(void *handler);
    void *(*get)(void);
} handlers;

static void
destroy(void *self)
{
    (void)self; /* its owner does */
}

static void
process(kin_warning_catch *self, const void *warning)
{
    self->warned = true;
}

static const struct {
    void (*destroy[2])(void *self);
    void (*process)(kin_warning_catch *self, const void *warning);
} methods = {{destroy, destroy}, process};

bool
kin_warnings_init(PyObject *torch_module)
{
    void *c10 = kin_aten_library(torch_module, "libc10.so");
    return kin_aten_symbol(c10, "_ZN3c1012WarningUtils19set_warning_handlerEPNS_14WarningHandlerE", &handlers.set) &&
           kin_aten_symbol(c10, "_ZN3c1012WarningUtils19get_warning_handlerEv", &handlers.get);
}

void
kin_warnings_begin(kin_warning_catch *c)
{
    *c = (kin_warning_catch){.methods = &methods, .before = handlers.get()};
    handlers.set(c);
}

bool
kin_warnings_end(kin_warning_catch *c)
{
    handlers.set(c->before);
    return c->warned;
}
