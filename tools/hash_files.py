"""Writes a C file that defines `const char NAME[]` as a hash over the contents of files: a version that nobody can forget
to raise. Usage: hash_files.py OUT NAME FILE...
"""

import hashlib
import os
import sys

out, name, files = sys.argv[1], sys.argv[2], sys.argv[3:]
digest = hashlib.sha256()
for path in sorted(files, key=os.path.basename):
    with open(path, "rb") as f:
        data = f.read()
    digest.update(f"{os.path.basename(path)} {len(data)}\n".encode() + data)
with open(out, "w") as f:
    f.write(f'extern const char {name}[];\nconst char {name}[] = "{digest.hexdigest()[:16]}";\n')
