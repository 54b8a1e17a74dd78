"""A tiny GPT-2 trained by hand: accumulation, warm-up, clipping, gradient checkpointing in the second epoch, generation between epochs."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=90, n_positions=32, use_cache=False))
    compiled = torch.compile(model)
    decay = [p for n, p in model.named_parameters() if p.dim() > 1]
    rest = [p for n, p in model.named_parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, eps=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    tokens = torch.randint(0, 90, (24, 16))
    for epoch in range(3):
        model.train()
        if epoch == 1:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        elif epoch == 2:
            model.gradient_checkpointing_disable()
        for i, batch in enumerate(tokens.split(4)):
            loss = compiled(batch, labels=batch).loss / 2
            loss.backward()
            if i % 2 == 1:
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
                print(f"norm {norm.item():.9g} {scheduler.get_last_lr()[0]:.9g}")
            print(f"loss {epoch} {i} {loss.item():.9g}")
        model.eval()
        with torch.no_grad():
            print(f"eval {compiled(tokens, labels=tokens).loss.item():.9g}")


if __name__ == "__main__":
    main()
