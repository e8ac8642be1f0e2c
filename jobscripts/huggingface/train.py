"""Train a small GPT-2 with Hugging Face's Trainer, without lost work.

sbatch /shared/jobscripts/torchrun.sbatch /shared/jobscripts/huggingface/train.py --epochs 2

It learns from Python's source text.
"""

import argparse
import math
import sysconfig
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from toolkit.training import Run
from toolkit.training.adapters.huggingface import train


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8, help="sequences a step, on each rank")
    parser.add_argument("--length", type=int, default=128, help="bytes a sequence")
    parser.add_argument("--sequences", type=int, default=2048)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps")
    return parser.parse_args()


class Text(Dataset):
    """Sequences of bytes from the standard library, which every node has."""

    def __init__(self, count: int, length: int) -> None:
        content = b""
        for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
            content += path.read_bytes()
            if len(content) >= count * length:
                break
        tensor = torch.frombuffer(bytearray(content[: count * length]), dtype=torch.uint8)
        self.tokens = tensor.view(count, length).to(torch.int64)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[number], "labels": self.tokens[number]}


def main() -> None:
    args = parse()
    torch.set_num_threads(1)  # More threads add in another order, so weights differ in bits.
    with Run(params=vars(args), seed=args.seed, checkpoint_every=args.checkpoint_every) as run:
        settings = TrainingArguments(
            output_dir=str(run.dir.path / "trainer"),
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch,
            learning_rate=args.rate,
            seed=args.seed,
            logging_steps=10,
            eval_strategy="epoch",
            ddp_find_unused_parameters=False,
            disable_tqdm=True,
            report_to="none",  # The run keeps its own records.
            use_cpu=run.device.type == "cpu",
        )
        torch.manual_seed(args.seed)
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=256, n_positions=args.length,
                n_embd=args.width, n_layer=args.layers, n_head=4,
                bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM",
            )
        )  # fmt: skip
        text = Text(args.sequences, args.length)
        held_out = torch.utils.data.Subset(text, range(0, len(text), 20))
        trainer = Trainer(model=model, args=settings, train_dataset=text, eval_dataset=held_out)
        train(run, trainer)
        loss = trainer.evaluate()["eval_loss"]
        run.finish(bits_per_byte=round(loss / math.log(2), 4))


if __name__ == "__main__":
    main()
