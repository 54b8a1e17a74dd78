/* The process's tracker (track.h). */
#include "py/aten/track.h"

kin_track *
kin_process_track(void)
{
    static kin_track *track;
    if (track == NULL)
        track = kin_track_new(NULL);
    return track;
}
