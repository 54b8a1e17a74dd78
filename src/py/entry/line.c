/* Where a step stands (place.h). */
#include "py/entry/line.h"

kin_line
kin_snap_line(const kin_entry *v, uint32_t snap)
{
    kin_line place = {.code = NULL, .line = 0, .column = -1, .end_column = -1};
    const kin_snap *s = snap != 0 && snap < v->trace.snaps.len ? &v->trace.snaps.at[snap] : NULL;
    PyObject *code = s != NULL ? kin_refs_get(&v->refs, s->code) : NULL;
    if (code == NULL || !PyCode_Check(code))
        return place;
    place.code = (PyCodeObject *)code;
    place.line = s->line > 0 ? (int)s->line : PyCode_Addr2Line(place.code, (int)s->offset); /* only breaks note their line when they are recorded */
    place.line = place.line > 0 ? place.line : place.code->co_firstlineno;
    int line, column, end_line, end_column;
    if (PyCode_Addr2Location(place.code, (int)s->offset, &line, &column, &end_line, &end_column) && line == place.line && end_line == line && column >= 0) {
        place.column = column;
        place.end_column = end_column;
    }
    return place;
}
