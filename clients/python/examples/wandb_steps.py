"""Sends the steps of a job to Weights & Biases while it trains: python wandb_steps.py JOB"""
import sys

import trainyard


def main(job: str) -> None:
    import wandb

    with trainyard.Client() as client:
        run = wandb.init(project="trainyard", id=job, resume="allow", config=client.get(job).spec)
        # A run that is resumed has the steps up to run.step - 1.
        for step in client.steps(job, after=max(run.step - 1, 0), follow=True):
            run.log(step.numbers(), step=step.step)
        run.finish()


if __name__ == "__main__":
    main(sys.argv[1])
