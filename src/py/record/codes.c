#include "py/record/codes.h"

#include "core/base/vec.h"

static struct {
    PyCodeObject **keys;
    kin_code **values;
    uint32_t mask, used;
} cache;

static uint32_t
find_slot(PyCodeObject *code)
{
    uint32_t i = (uint32_t)(((uintptr_t)code >> 4) * 0x9E3779B1u) & cache.mask;
    while (cache.keys[i] != NULL && cache.keys[i] != code)
        i = (i + 1) & cache.mask;
    return i;
}

static bool
grow_cache(void)
{
    uint32_t n = cache.mask ? (cache.mask + 1) * 2 : 256;
    PyCodeObject **keys = cache.keys;
    kin_code **values = cache.values;
    uint32_t old = cache.mask ? cache.mask + 1 : 0;
    PyCodeObject **new_keys = calloc(n, sizeof *new_keys);
    kin_code **new_values = calloc(n, sizeof *new_values);
    if (new_keys == NULL || new_values == NULL) {
        free(new_keys);
        free(new_values);
        return false;
    }
    cache.keys = new_keys;
    cache.values = new_values;
    cache.mask = n - 1;
    for (uint32_t i = 0; i < old; i++)
        if (keys[i] != NULL) {
            uint32_t j = find_slot(keys[i]);
            cache.keys[j] = keys[i];
            cache.values[j] = values[i];
        }
    free(keys);
    free(values);
    return true;
}

static kin_code *
decode(PyCodeObject *code)
{
    PyObject *bytes = PyCode_GetCode(code);
    kin_code *kc = calloc(1, sizeof *kc);
    kin_status st = KIN_NOMEM;
    if (bytes != NULL && kc != NULL)
        st = kin_code_init(kc, (kin_py_version)(PY_MAJOR_VERSION * 100 + PY_MINOR_VERSION),
                           (const uint8_t *)PyBytes_AS_STRING(bytes), (uint32_t)PyBytes_GET_SIZE(bytes),
                           (const uint8_t *)PyBytes_AS_STRING(code->co_exceptiontable),
                           (uint32_t)PyBytes_GET_SIZE(code->co_exceptiontable));
    Py_XDECREF(bytes);
    PyErr_Clear();
    if (st != KIN_OK) {
        free(kc);
        return NULL;
    }
    return kc;
}

const kin_code *
rec_code_of(PyCodeObject *code)
{
    if (cache.used * 3 >= cache.mask * 2 && !grow_cache())
        return NULL;
    uint32_t i = find_slot(code);
    if (cache.keys[i] == NULL) {
        kin_code *kc = decode(code);
        if (kc == NULL)
            return NULL;
        cache.keys[i] = (PyCodeObject *)Py_NewRef(code);
        cache.values[i] = kc;
        cache.used++;
    }
    return cache.values[i];
}
