# title: reset, and the cache folder by its setting
# equal: none
# expect: Cache dir: \S
import torch
import torch._dynamo

torch._dynamo.reset()
print(f"Cache dir: {torch._dynamo.config.cache_dir}")
