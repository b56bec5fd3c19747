"""The boards of one job and of several."""

from panels import JOB, WIDTH, board, by_job, lines, over_tokens, query, stat, table, variable

ONE = 'job_id="$job_id"'
SOME = 'job_id=~"$job_id"'
RANKS = f'{ONE}, rank=~"$rank"'


def per_step(metric, labels):
    """Seconds or bytes of a counter for each step of the job. Absent while no step is finished."""
    return f"""sum by ({labels}) (rate({metric}{{{ONE}}}[$__rate_interval]))
        / on () group_left () (sum(rate(trainyard_steps_total{{{ONE}}}[$__rate_interval])) > 0)"""


def job():
    summary = [
        stat(
            "Running",
            "1 while all ranks are ready.",
            f"sum(trainyard_job_running{{{ONE}}}) or vector(0)",
        ),
        stat("Loss", "Of the last step.", f"trainyard_loss{{{ONE}}}", decimals=3),
        stat(
            "MFU",
            "Model FLOPs over five minutes, divided by the FLOPs that the devices could have"
            " done.",
            f"job:trainyard_mfu:ratio_rate5m{{{ONE}}}",
            unit="percentunit",
        ),
        stat("Tokens per second", "Over five minutes.", f"job:trainyard_tokens:rate5m{{{ONE}}}"),
        stat(
            "Time left",
            "At the recent rate.",
            f"trainyard_estimated_seconds_remaining{{{ONE}}}",
            unit="s",
        ),
        stat(
            "Goodput",
            "The share of the time since the first placement that was spent in steps that count.",
            f"trainyard_goodput_ratio{{{ONE}}}",
            unit="percentunit",
        ),
        table(
            "What it is",
            "Model, batch and layout.",
            [("", "short", f"trainyard_job_info{{{ONE}}}")],
            hidden=("instance", "job", "Value", "", "flops_convention"),
            height=4,
        ),
    ]
    # The numbers of a step (step.proto) that people look at in every run. Each has a gauge.
    progress = [
        lines(
            "Loss",
            "The loss of the last step, and of the last validation. If the loss rises or is NaN,"
            " the job diverges.",
            query(f"trainyard_loss{{{ONE}}}", "training"),
            query(f"trainyard_validation_loss{{{ONE}}}", "validation"),
        ),
        lines(
            "Gradient norm",
            "The norm of the gradients before clipping. Spikes announce divergence.",
            query(f"trainyard_grad_norm{{{ONE}}}", "norm"),
        ),
        lines(
            "Learning rate",
            "If the rate is not on the job's schedule, there is a fault.",
            query(f"trainyard_learning_rate{{{ONE}}}", "rate"),
            unit="sci",
        ),
        lines(
            "Steps left out",
            "Updates that were not made, because the loss or the gradients were not finite.",
            query(
                f"increase(trainyard_skipped_steps_total{{{ONE}}}[$__rate_interval])", "{{reason}}"
            ),
        ),
        lines(
            "Load of experts",
            "The mean of the balancing loss over layers. The mean is 1 if experts are evenly"
            " loaded. There is no value if the model has no experts or is not trained for their"
            " load.",
            query(f"trainyard_load_balancing_loss{{{ONE}}}", "load balancing loss"),
        ),
        lines(
            "Tokens seen",
            "Each token counts once. The line falls where the job resumes from a checkpoint.",
            query(f"trainyard_tokens_seen{{{ONE}}}", "tokens"),
        ),
    ]
    speed = [
        lines(
            "MFU",
            "MFU over five minutes, by counters, and MFU of the last step alone. If MFU falls,"
            " there is a straggler, or ranks wait.",
            query(f"trainyard_mfu_ratio{{{ONE}}}", "last step"),
            query(f"job:trainyard_mfu:ratio_rate5m{{{ONE}}}", "over 5 minutes"),
            unit="percentunit",
        ),
        lines(
            "Model FLOPs",
            "Model FLOPs without recompute, beside the dense peak of the devices together.",
            query(
                f"sum(rate(trainyard_model_flops_total{{{ONE},"
                ' convention="exact"}[$__rate_interval]))',
                "computed",
            ),
            query(f"trainyard_peak_flops{{{ONE}}}", "peak"),
            unit="flops",
        ),
        lines(
            "Tokens per second and device",
            "Of the last step.",
            query(f"trainyard_tokens_per_second_per_device{{{ONE}}}", "tokens/s"),
        ),
        lines(
            "Where a step's time goes",
            "Seconds of the slowest rank for each step, by phase. If data is large, the job waits"
            " for its data. If grad_sync is large, communication is not hidden. If host is large,"
            " the devices wait between steps.",
            query(per_step("trainyard_phase_seconds_total", "phase"), "{{phase}}"),
            stacked=True,
            unit="s",
            width=16,
        ),
        lines(
            "Step time",
            "The step time of the slowest rank.",
            query(f"job:trainyard_step_duration_seconds:mean5m{{{ONE}}}", "mean over 5 minutes"),
            query(
                "histogram_quantile(0.99, sum by (le)"
                f" (rate(trainyard_step_duration_seconds_bucket{{{ONE}}}[$__rate_interval])))",
                "p99",
            ),
            unit="s",
        ),
    ]
    ranks = [
        lines(
            "Step time by rank",
            "A rank slower than its peers holds up the whole job.",
            query(
                "sum by (rank)"
                f" (rate(trainyard_rank_step_duration_seconds_sum{{{RANKS}}}[$__rate_interval])) /"
                " sum by (rank)"
                f" (rate(trainyard_rank_step_duration_seconds_count{{{RANKS}}}[$__rate_interval]))",
                "rank {{rank}}",
            ),
            unit="s",
        ),
        lines(
            "Waiting by rank",
            "The share of its step time in which a rank waited for its peers. The rank that waits"
            " least is the one that the others wait for.",
            query(
                f"max by (rank) (job_rank:trainyard_rank_wait:ratio_rate5m{{{RANKS}}})",
                "rank {{rank}}",
            ),
            unit="percentunit",
        ),
        lines(
            "Memory against plan",
            "Planned is the memory that the rank's program was laid out for. Peak is the most"
            " memory that the rank used. If the peak is far above the plan, there is a leak.",
            query(
                f"max by (rank, kind) (trainyard_device_memory_bytes{{{RANKS}}})",
                "rank {{rank}} {{kind}}",
            ),
            unit="bytes",
        ),
        lines(
            "Time in collectives",
            "Seconds of all ranks together for each step, including hidden collectives. If the"
            " time is long for few bytes, ranks wait for each other.",
            query(per_step("trainyard_collective_seconds_total", "op, group"), "{{op}} {{group}}"),
            unit="s",
        ),
        lines(
            "Bytes in collectives",
            "Bytes that all ranks together send. If the rate is far below the link's rate,"
            " messages are small or ranks wait.",
            query(
                "sum by (op, group)"
                f" (rate(trainyard_collective_bytes_total{{{ONE}}}[$__rate_interval]))",
                "{{op}} {{group}}",
            ),
            unit="Bps",
        ),
        lines(
            "GPU utilisation by rank",
            "The share of the time in which a kernel ran. Ranks on CPUs have no value.",
            query(
                "trainyard_gpu_utilization_ratio * on (instance, UUID) group_right ()"
                f" trainyard_device_info{{{RANKS}}}",
                "rank {{rank}} on {{Hostname}}",
            ),
            unit="percentunit",
        ),
    ]
    safety = [
        lines(
            "Time of a checkpoint",
            "The mean time of all saves, until the checkpoint is committed. Near the interval"
            " between checkpoints, the storage is slow.",
            query(
                f"sum(trainyard_checkpoint_duration_seconds_sum{{{ONE}}}) /"
                f" sum(trainyard_checkpoint_duration_seconds_count{{{ONE}}})",
                "mean",
            ),
            unit="s",
        ),
        lines(
            "Age of the last checkpoint",
            "The time since the last checkpoint was committed.",
            query(f"time() - trainyard_last_checkpoint_timestamp_seconds{{{ONE}}}", "age"),
            unit="s",
        ),
        lines(
            "Steps at risk",
            "Steps that a failure now would repeat, and the interval that the job asks for. Above"
            " twice the interval, a checkpoint is overdue.",
            query(f"trainyard_steps_since_checkpoint{{{ONE}}}", "since the last checkpoint"),
            query(f"trainyard_checkpoint_interval_steps{{{ONE}}}", "interval"),
        ),
        lines(
            "Size of checkpoints",
            "Of the last one.",
            query(f"trainyard_checkpoint_size_bytes{{{ONE}}}", "size"),
            unit="bytes",
        ),
        lines(
            "Checkpoints that failed",
            "The storage is full or fails. The events of the job say more.",
            query(f"trainyard_checkpoint_failures_total{{{ONE}}}", "failures"),
        ),
        lines(
            "Restarts",
            "Attempts that ended early, by reason.",
            query(f"sum by (reason) (trainyard_restarts_total{{{ONE}}})", "{{reason}}"),
        ),
        lines(
            "Time to start",
            "The time from placement until all ranks are ready, and until the first step.",
            query(f"trainyard_startup_seconds{{{ONE}}}", "{{phase}}"),
            unit="s",
        ),
        lines(
            "Goodput",
            "The share of the time since the first placement that was spent in steps that count.",
            query(f"trainyard_goodput_ratio{{{ONE}}}", "goodput"),
            unit="percentunit",
            max=1,
        ),
        lines(
            "Time that advanced nothing",
            "Lost seconds by cause, since the controller started. Reduce the largest cause first.",
            query(f"sum by (cause) (trainyard_badput_seconds_total{{{ONE}}})", "{{cause}}"),
            stacked=True,
            unit="s",
        ),
    ]
    variables = [
        variable("job_id", "Job", "trainyard_job_info", many=False),
        variable(
            "rank", "Rank", "trainyard_rank_step_duration_seconds_count", many=True, matching=ONE
        ),
    ]
    return board(
        "trainyard-job",
        "Trainyard: job",
        "One job: loss, speed, ranks, checkpoints and failures.",
        variables,
        {
            "Now": summary,
            "Progress": progress,
            "Speed": speed,
            "Ranks": ranks,
            "Checkpoints and failures": safety,
        },
    )


def compare():
    def each(expr):
        return query(by_job(f"{expr}{{{SOME}}}"), JOB)

    what = [
        table(
            "Jobs",
            "What differs between them.",
            [
                (
                    "Tokens seen",
                    "short",
                    (
                        f"trainyard_job_info{{{SOME}}} * on (job_id) group_left ()"
                        " trainyard_tokens_seen"
                    ),
                ),
                (
                    "Loss",
                    "short",
                    f"trainyard_job_info{{{SOME}}} * on (job_id) group_left () trainyard_loss",
                ),
                (
                    "MFU",
                    "percentunit",
                    (
                        f"trainyard_job_info{{{SOME}}} * on (job_id) group_left ()"
                        " job:trainyard_mfu:ratio_rate5m"
                    ),
                ),
            ],
            hidden=("instance", "job", "flops_convention"),
        )
    ]
    tokens = [
        over_tokens(
            "Loss over tokens",
            "Training loss of each job over the tokens that it has seen.",
            f"trainyard_loss{{{SOME}}}",
            width=WIDTH // 2,
            height=12,
        ),
        over_tokens(
            "Validation loss over tokens",
            "Loss of the last validation of each job over the tokens that it has seen.",
            f"trainyard_validation_loss{{{SOME}}}",
            width=WIDTH // 2,
            height=12,
        ),
        over_tokens(
            "Gradient norm over tokens",
            "Before clipping.",
            f"trainyard_grad_norm{{{SOME}}}",
            width=WIDTH // 2,
        ),
        over_tokens(
            "Learning rate over tokens",
            "If the rate is not on the job's schedule, there is a fault.",
            f"trainyard_learning_rate{{{SOME}}}",
            unit="sci",
            width=WIDTH // 2,
        ),
    ]
    speed = [
        lines(
            "MFU", "Over five minutes.", each("job:trainyard_mfu:ratio_rate5m"), unit="percentunit"
        ),
        lines("Tokens per second", "Over five minutes.", each("job:trainyard_tokens:rate5m")),
        lines(
            "Tokens per second and device",
            "Of the last step.",
            each("trainyard_tokens_per_second_per_device"),
        ),
        lines(
            "Step time",
            "The mean step time of the slowest rank over five minutes.",
            each("job:trainyard_step_duration_seconds:mean5m"),
            unit="s",
        ),
        lines(
            "Goodput",
            "The share of the time since the first placement that was spent in steps that count.",
            each("trainyard_goodput_ratio"),
            unit="percentunit",
            max=1,
        ),
        lines(
            "Restarts",
            "Attempts that ended early.",
            # A job that has finished no step has no name here yet.
            query(
                by_job(f"sum by (job_id) (trainyard_restarts_total{{{SOME}}})")
                + f" or on (job_id) sum by (job_id) (trainyard_restarts_total{{{SOME}}})",
                JOB,
            ),
        ),
    ]
    return board(
        "trainyard-compare",
        "Trainyard: compare jobs",
        "Several jobs beside each other, over the tokens that they have seen.",
        [variable("job_id", "Jobs", "trainyard_job_info", many=True)],
        {"Jobs": what, "Over tokens seen": tokens, "Speed": speed},
    )
