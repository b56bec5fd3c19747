"""The boards of the cluster and of its controller."""

from panels import JOB, board, by_job, lines, query, stat, table

JOB_BOARD = (
    "/d/trainyard-job?var-job_id=${__value.text}&${datasource:queryparam}&${__url_time_range}"
)


def cluster():
    summary = [
        stat(
            "Devices busy",
            "The share of all devices that have a rank of a job.",
            "cluster:trainyard_devices_busy:ratio",
            unit="percentunit",
        ),
        stat(
            "Jobs running",
            "The number of jobs all of whose ranks are ready.",
            'sum(trainyard_jobs{state="running"})',
        ),
        stat("Jobs queued", "Jobs that wait for devices.", 'sum(trainyard_jobs{state="queued"})'),
        stat("Workers ready", "Machines that take ranks.", 'sum(trainyard_workers{state="ready"})'),
        stat(
            "Workers lost",
            "Machines that were not heard of for longer than their lease.",
            'sum(trainyard_workers{state="lost"})',
            red_from=1,
        ),
        stat(
            "Alerts firing",
            "See docs/runbook.md for what each one means.",
            'count(ALERTS{alertstate="firing"}) or vector(0)',
            red_from=1,
        ),
    ]
    jobs = [
        table(
            "Jobs",
            "Jobs that run, or that ended within the last 15 minutes. Click on a job for its own"
            " board.",
            [
                (
                    "MFU",
                    "percentunit",
                    (
                        "max by (job_id, job_name, model, device_model) (trainyard_job_info * on"
                        " (job_id) group_left () job:trainyard_mfu:ratio_rate5m)"
                    ),
                ),
                (
                    "Tokens/s",
                    "short",
                    (
                        "max by (job_id, job_name, model, device_model) (trainyard_job_info * on"
                        " (job_id) group_left () job:trainyard_tokens:rate5m)"
                    ),
                ),
                (
                    "Loss",
                    "short",
                    (
                        "max by (job_id, job_name, model, device_model) (trainyard_job_info * on"
                        " (job_id) group_left () trainyard_loss)"
                    ),
                ),
                (
                    "Time left",
                    "s",
                    (
                        "max by (job_id, job_name, model, device_model) (trainyard_job_info * on"
                        " (job_id) group_left () trainyard_estimated_seconds_remaining)"
                    ),
                ),
            ],
            links=[("job_id", "The job's board", JOB_BOARD)],
        ),
        lines(
            "Jobs by state",
            "The number of jobs that have not ended. If a job is recovering for long, it is in a"
            " restart loop.",
            query("sum by (state) (trainyard_jobs)", "{{state}}"),
            stacked=True,
        ),
        lines(
            "Jobs ended",
            "The number of jobs that ended in each hour, by outcome.",
            query(
                "round(sum by (outcome) (increase(trainyard_jobs_finished_total[1h])))",
                "{{outcome}}",
            ),
        ),
        lines(
            "Wait in the queue",
            "The time from submission to the first placement, of jobs that were placed within the"
            " hour.",
            query(
                "histogram_quantile(0.5, sum by (le)"
                " (rate(trainyard_queue_wait_seconds_bucket[1h])))",
                "median",
            ),
            query(
                "histogram_quantile(0.9, sum by (le)"
                " (rate(trainyard_queue_wait_seconds_bucket[1h])))",
                "p90",
            ),
            unit="s",
        ),
    ]
    capacity = [
        lines(
            "Devices by state",
            "If many devices are free while jobs are queued, the free devices do not fit the"
            " gangs of the jobs.",
            query("sum by (state, device_model) (trainyard_devices)", "{{state}} {{device_model}}"),
            stacked=True,
        ),
        lines(
            "Model FLOPs",
            "The model FLOPs of all jobs together, without recompute.",
            query(
                'sum(rate(trainyard_model_flops_total{convention="exact"}[$__rate_interval]))',
                "computed",
            ),
            query(
                "sum(max by (job_id) (trainyard_peak_flops) and on (job_id) trainyard_job_running)",
                "peak of the devices in use",
            ),
            unit="flops",
        ),
        lines(
            "Tokens per second",
            "The tokens per second of all jobs together.",
            query(by_job("rate(trainyard_tokens_total[$__rate_interval])"), JOB),
            stacked=True,
        ),
    ]
    workers = [
        lines(
            "Workers by state",
            "A lost worker is forgotten after an hour.",
            query("sum by (state) (trainyard_workers)", "{{state}}"),
            stacked=True,
        ),
        lines(
            "Workers' silence",
            "The time since the last message of the ten workers that were silent longest. Above the"
            " lease, of 6 seconds or more, a worker is lost.",
            query("topk(10, trainyard_worker_heartbeat_age_seconds)", "{{worker_id}}"),
            unit="s",
        ),
        table(
            "Builds",
            "If several revisions run at once, an upgrade is half done.",
            [
                (
                    "Programs",
                    "short",
                    "count by (job, version, revision, cuda) (trainyard_build_info)",
                )
            ],
            hidden=(),
            width=8,
        ),
    ]
    per_gpu = "{{instance}} GPU {{gpu}}"
    gpus = [
        lines(
            "GPU utilisation",
            "The share of the time in which a kernel ran. A high value says nothing of speed.",
            query("trainyard_gpu_utilization_ratio", per_gpu),
            unit="percentunit",
            min=0,
            max=1,
        ),
        lines(
            "GPU memory used",
            "The share of the GPU's memory that all programs together use.",
            query("trainyard_gpu_memory_used_bytes / trainyard_gpu_memory_bytes", per_gpu),
            unit="percentunit",
            min=0,
            max=1,
        ),
        lines(
            "GPU power",
            "The power of the whole board. If a GPU under load is far below its peers, something"
            " holds the GPU down.",
            query("trainyard_gpu_power_watts", per_gpu),
            unit="watt",
        ),
        lines(
            "GPU temperature",
            "Near 90 degrees a GPU slows down.",
            query("trainyard_gpu_temperature_celsius", per_gpu),
            unit="celsius",
        ),
        lines(
            "GPU clock",
            "The clock of the multiprocessors. The lowest clock of a job sets the job's step"
            " time.",
            query("trainyard_gpu_sm_clock_hertz", per_gpu),
            unit="hertz",
        ),
        lines(
            "GPUs held down",
            "The number of GPUs that run below their clock, by reason. sw_power_cap is usual"
            " under load.",
            query("sum by (reason) (trainyard_gpu_throttled)", "{{reason}}"),
        ),
        table(
            "XID errors",
            "Reports of NVIDIA's driver since the worker started. 13, 31, 43 and 45 come from"
            " programs; the others call for a look at the machine.",
            [
                (
                    "Errors",
                    "short",
                    "sum by (instance, gpu, UUID, xid) (trainyard_gpu_xid_errors_total)",
                )
            ],
            width=8,
        ),
        lines(
            "GPUs lost",
            "A GPU that fell off the bus, or needs a reset. The machine needs a reboot.",
            query("sum by (instance) (trainyard_gpu_lost)", "{{instance}}"),
        ),
        lines(
            "Age of GPU readings",
            "If the age is above a minute, the driver hangs or the GPU is lost.",
            query("time() - trainyard_gpu_last_reading_timestamp_seconds", per_gpu),
            unit="s",
        ),
    ]
    return board(
        "trainyard-cluster",
        "Trainyard: cluster",
        "Capacity, queue, workers and GPUs of a Trainyard cluster.",
        [],
        {
            "Now": summary,
            "Jobs and queue": jobs,
            "Capacity": capacity,
            "Workers": workers,
            "GPUs": gpus,
        },
    )


def controller():
    summary = [
        stat(
            "Up for",
            "The time since the controller was started.",
            'time() - max(process_start_time_seconds{job="trainyard-controller"})',
            unit="s",
        ),
        stat(
            "Memory",
            "Resident memory of the controller.",
            'max(process_resident_memory_bytes{job="trainyard-controller"})',
            unit="bytes",
        ),
        stat(
            "Processor",
            "Cores that the controller uses.",
            'sum(rate(process_cpu_seconds_total{job="trainyard-controller"}[$__rate_interval]))',
            decimals=2,
        ),
        stat(
            "Commit, p99",
            "The time of the slowest hundredth of the store's commits.",
            "cluster:trainyard_store_commit_duration_seconds:p99_rate5m",
            unit="s",
            red_from=0.5,
        ),
        stat(
            "First certificate to end",
            "Programs renew their certificates ten days before the end.",
            "min(trainyard_certificate_expiry_timestamp_seconds) - time()",
            unit="s",
        ),
        stat(
            "Pages that fail",
            "Metrics pages that Prometheus cannot read.",
            'sum(up{job=~"trainyard-.*"} == bool 0)',
            red_from=1,
        ),
    ]
    calls = [
        lines(
            "Calls by method",
            "The number of calls that ended per second.",
            query(
                "sum by (grpc_method) (rate(grpc_server_handled_total[$__rate_interval]))",
                "{{grpc_method}}",
            ),
            unit="reqps",
        ),
        lines(
            "Calls by code",
            "If codes other than OK rise, clients or the store are in trouble.",
            query(
                "sum by (grpc_code) (rate(grpc_server_handled_total[$__rate_interval]))",
                "{{grpc_code}}",
            ),
            unit="reqps",
        ),
        lines(
            "Latency of calls, p99",
            "The latency of the methods that were called within five minutes. Streams, such as"
            " WatchJob and Connect, last as long as they are open.",
            # The comparison leaves NaN out: the value of a method that nobody called.
            query("method:grpc_server_handling_seconds:p99_rate5m >= 0", "{{grpc_method}}"),
            unit="s",
        ),
        lines(
            "Calls refused",
            "Calls that the gate did not let in, by reason. If the number rises, callers have no"
            " token or role, or somebody tries to get in.",
            query(
                "sum by (reason) (rate(trainyard_calls_refused_total[$__rate_interval]))",
                "{{reason}}",
            ),
            unit="reqps",
        ),
        lines(
            "Reports refused",
            "Reports of ranks that were acknowledged and not stored. If the number rises without"
            " restarts, there are two controllers or a fault.",
            query(
                "sum by (report) (rate(trainyard_reports_refused_total[$__rate_interval]))",
                "{{report}}",
            ),
            unit="cps",
        ),
        lines(
            "Reports dropped by workers",
            "Reports that workers dropped because a bound was reached while the controller was"
            " away.",
            query(
                "sum by (kind) (increase(trainyard_reports_dropped_total[$__rate_interval]))",
                "{{kind}}",
            ),
        ),
    ]
    store = [
        lines(
            "Commits",
            "Transactions of the store. All transactions that wait when a commit begins share the"
            " sync of this commit.",
            query(
                "sum(rate(trainyard_store_commit_duration_seconds_count[$__rate_interval]))",
                "commits",
            ),
            unit="cps",
        ),
        lines(
            "Time of a commit",
            "The time of a commit with its sync of the disk. Near a second, calls that change"
            " anything are slow, too.",
            query(
                "histogram_quantile(0.5, sum by (le)"
                " (rate(trainyard_store_commit_duration_seconds_bucket[$__rate_interval])))",
                "median",
            ),
            query(
                "histogram_quantile(0.99, sum by (le)"
                " (rate(trainyard_store_commit_duration_seconds_bucket[$__rate_interval])))",
                "p99",
            ),
            unit="s",
        ),
        lines(
            "Backups",
            "The age of the newest backup since the start, and the number of backups that failed."
            " Without a value, the controller makes no backups.",
            query("time() - trainyard_store_last_backup_timestamp_seconds", "age"),
            query("trainyard_store_backup_failures_total", "failures"),
            unit="s",
        ),
    ]
    store[2]["fieldConfig"]["overrides"] = [
        {
            "matcher": {"id": "byName", "options": "failures"},
            "properties": [{"id": "unit", "value": "short"}],
        }
    ]
    scheduler = [
        lines(
            "Queue",
            "Jobs that wait for devices.",
            query('sum(trainyard_jobs{state="queued"})', "queued"),
        ),
        lines(
            "Time of a pass",
            "The time of one pass over queue and machines. Near a second, the queue is too long"
            " for one pass.",
            query(
                "sum(rate(trainyard_scheduling_pass_duration_seconds_sum[1h])) /"
                " sum(rate(trainyard_scheduling_pass_duration_seconds_count[1h]))",
                "mean",
            ),
            unit="s",
        ),
        lines(
            "Jobs submitted",
            "The number of jobs that were submitted in each hour.",
            query("round(sum(increase(trainyard_jobs_submitted_total[1h])))", "jobs"),
        ),
    ]
    process = [
        lines(
            "Memory",
            "The memory of controller and workers, without their ranks. If the memory grows for"
            " days, there is a leak.",
            query("process_resident_memory_bytes", "{{job}} {{instance}}"),
            unit="bytes",
        ),
        lines(
            "Descriptors",
            "The share of the descriptors that a program may use. Near 1, connections are refused.",
            query("process_open_fds / process_max_fds", "{{job}} {{instance}}"),
            unit="percentunit",
        ),
        lines(
            "Time of a scrape",
            "The time that reading the metrics pages takes.",
            query('scrape_duration_seconds{job=~"trainyard-.*"}', "{{job}} {{instance}}"),
            unit="s",
        ),
    ]
    return board(
        "trainyard-controller",
        "Trainyard: controller",
        "Calls, store, scheduler and process of a Trainyard controller.",
        [],
        {
            "Now": summary,
            "Calls": calls,
            "Store": store,
            "Scheduler": scheduler,
            "Processes": process,
        },
    )
