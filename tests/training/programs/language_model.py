"""A recurrent language model with truncated backpropagation, gradient accumulation, clipping, tied weights and dropout."""
import math

import torch
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nlayers):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, ninp, nlayers, dropout=0.2)
        self.decoder = nn.Linear(ninp, ntoken)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens, hidden):
        emb = self.drop(self.encoder(tokens))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return torch.log_softmax(decoded.view(-1, decoded.size(-1)), dim=1), hidden


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def main():
    torch.manual_seed(2)
    ntokens, bptt, batch, accumulate = 50, 7, 4, 2
    corpus = torch.randint(0, ntokens, (120, batch))
    model = torch.compile(RNNModel(ntokens, 24, 2))
    criterion = nn.NLLLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    for epoch in range(2):
        model.train()
        hidden = (torch.zeros(2, batch, 24), torch.zeros(2, batch, 24))
        optimizer.zero_grad()
        for i, start in enumerate(range(0, corpus.size(0) - 1, bptt)):
            n = min(bptt, corpus.size(0) - 1 - start)
            data, targets = corpus[start:start + n], corpus[start + 1:start + 1 + n].reshape(-1)
            hidden = repackage_hidden(hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            (loss / accumulate).backward()
            if (i + 1) % accumulate == 0:
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()
                optimizer.zero_grad()
                print(f"norm {norm:.9g}")
            print(f"epoch {epoch} {i} {loss.item():.9g} {math.exp(loss.item()):.9g}")
    print("tied", model.decoder.weight is model.encoder.weight)


if __name__ == "__main__":
    main()
