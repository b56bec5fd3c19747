"""Sends the steps of a job to MLflow while it trains: python mlflow_steps.py JOB"""
import sys

import trainyard


def main(job: str) -> None:
    import mlflow

    with trainyard.Client() as client, mlflow.start_run(run_name=job):
        mlflow.log_dict(client.get(job).spec, "spec.yaml")
        for step in client.steps(job, follow=True):
            mlflow.log_metrics(step.numbers(), step=step.step)


if __name__ == "__main__":
    main(sys.argv[1])
