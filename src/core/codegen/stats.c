/* What compiling a program's kernels cost, and where they came from (codegen.h). */
#include "core/codegen/codegen.h"

static const char *
answer_text(kin_store_answer answer)
{
    static const char *const texts[] = {
#define ANSWER(NAME, text) text,
#include "core/codegen/store_answers.def"
#undef ANSWER
    };
    return (unsigned)answer < KIN_STORE__COUNT ? texts[answer] : "?";
}

void
kin_compile_stats_add(kin_compile_stats *to, const kin_compile_stats *from)
{
    to->kernels += from->kernels;
    to->compiled += from->compiled;
    to->from_memory += from->from_memory;
    to->from_disk += from->from_disk;
    for (int i = 0; i < KIN_STORE__COUNT; i++)
        to->disk[i] += from->disk[i];
    to->fuse_ns += from->fuse_ns;
    to->key_ns += from->key_ns;
    to->disk_ns += from->disk_ns;
    to->codegen_ns += from->codegen_ns;
    to->llvm_ns += from->llvm_ns;
    to->load_ns += from->load_ns;
    to->code_bytes += from->code_bytes;
    if (from->slowest_ns > to->slowest_ns)
        to->slowest_ns = from->slowest_ns;
    if (from->trouble[0])
        memcpy(to->trouble, from->trouble, sizeof to->trouble);
}

void
kin_compile_stats_say(const kin_compile_stats *stats, kin_text *out)
{
    for (int i = KIN_STORE_HIT + 1; i < KIN_STORE__COUNT; i++)
        if (stats->disk[i])
            kin_text_addf(out, out->len ? ", %u %s" : "%u %s", stats->disk[i], answer_text((kin_store_answer)i));
}
