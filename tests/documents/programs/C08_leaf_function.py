# title: fix: leaf_function with register_fake
# equal: none
# expect: ran eagerly
# expect: \[3.0, 3.0\]
import torch
import torch._dynamo.decorators


@torch._dynamo.decorators.leaf_function
def my_function(x):
    print("ran eagerly")
    return (x + 1,)


@my_function.register_fake
def my_function_fake(x):
    return (torch.empty_like(x),)


@torch.compile(fullgraph=True)
def f(x):
    return my_function(x)[0] + 1


print(f(torch.ones(2)).tolist())
