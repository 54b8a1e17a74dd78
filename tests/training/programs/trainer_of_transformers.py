"""transformers' Trainer on a tiny model with random weights (needs accelerate)."""
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Printer(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        print("log", state.global_step, *[f"{k}={logs[k]:.9g}" for k in ("loss", "grad_norm", "eval_loss") if k in logs])


def main():
    torch.manual_seed(6)
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100, max_position_embeddings=32)
    model = BertForSequenceClassification(config)
    rows = [{"input_ids": torch.randint(0, 100, (12,)), "labels": torch.tensor(i % 2)} for i in range(48)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, num_train_epochs=2, per_device_train_batch_size=8, gradient_accumulation_steps=2, logging_steps=1, use_cpu=True,
                                      report_to=[], save_strategy="no", torch_compile=True, seed=6, disable_tqdm=True, max_grad_norm=0.5, adam_epsilon=1e-4)
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:8], callbacks=[Printer()])
        trainer.train()
        print(f"eval {trainer.evaluate()['eval_loss']:.9g}")


if __name__ == "__main__":
    main()
