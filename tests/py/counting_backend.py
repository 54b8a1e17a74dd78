"""A custom backend that notes what it is called with, and how often what it gave runs."""


class Counting:
    def __init__(self):
        self.inputs, self.runs = [], 0

    def __call__(self, gm, inputs):
        self.inputs.append(inputs)

        def run(*args):
            self.runs += 1
            return gm.forward(*args)
        return run
