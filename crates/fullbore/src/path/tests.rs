//! Every rule from both sides, on made-up counters.

use std::time::Duration;

use fullbore_base::Instant;

use super::*;
use crate::driver::tcp_info::TcpInfo;

const SECOND: Duration = Duration::from_secs(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A connection over a path of 200 ms that has just begun.
fn start() -> Sample {
    Sample {
        tcp: Some(TcpInfo {
            rtt: ms(200),
            min_rtt: Some(ms(199)),
            snd_mss: 1448,
            snd_cwnd: 1000,
            notsent_bytes: Some(0),
            snd_wnd: Some(8 << 20),
            rcv_wnd: Some(32 << 20),
            busy: Some(Duration::ZERO),
            rwnd_limited: Some(Duration::ZERO),
            sndbuf_limited: Some(Duration::ZERO),
            bytes_sent: Some(0),
            bytes_retrans: Some(0),
            bytes_received: Some(0),
            rcv_ooopack: Some(0),
            ..TcpInfo::default()
        }),
        lanes: LaneFacts {
            busy: 1,
            remote_window: 2 << 20,
            local_window: 64 << 20,
            outstanding_bytes: 16 << 20,
            outstanding_bytes_max: 64 << 20,
            outstanding_count: 64,
            ..LaneFacts::default()
        },
        ..Sample::default()
    }
}

/// One second later, all of it asleep for `wait` but for 20 ms at work.
fn later(before: &Sample, wait: Wait, change: impl FnOnce(&mut Sample)) -> Sample {
    let mut after = *before;
    after.at = before.at + SECOND;
    after.waits.add(wait, ms(980));
    after.thread.running += ms(20);
    after.requests_waited += 64 * SECOND;
    change(&mut after);
    after
}

fn upload(bytes: u64, wait: Wait, change: impl FnOnce(&mut Sample)) -> Limit {
    one_interval(wait, |sample| {
        sample.sent += bytes;
        change(sample);
    })
}

/// The second of two seconds at the same rate.
fn download(bytes: u64, change: impl FnOnce(&mut Sample)) -> Limit {
    let before = start();
    steady(before, bytes, change)
}

fn steady(mut first: Sample, bytes: u64, change: impl FnOnce(&mut Sample)) -> Limit {
    first.lanes.is_reading = true;
    let mut meter = Meter::default();
    meter.on_sample(first);
    let before = later(&first, Wait::Replies, |sample| sample.received += bytes);
    meter.on_sample(before);
    let after = later(&before, Wait::Replies, |sample| {
        sample.received += bytes;
        change(sample);
    });
    meter.on_sample(after);
    meter.latest().expect("ended").first
}

fn one_interval(wait: Wait, change: impl FnOnce(&mut Sample)) -> Limit {
    let before = start();
    let after = later(&before, wait, change);
    let mut meter = Meter::default();
    meter.on_sample(before);
    meter.on_sample(after);
    meter.latest().expect("one ended").first
}

fn tcp(sample: &mut Sample) -> &mut TcpInfo {
    sample.tcp.as_mut().expect("set by start()")
}

#[test]
fn a_window_that_turns_around_once_per_round_trip_is_the_limit() {
    // 2 MiB come back after 200 ms.
    let limit = upload(10_485_760, Wait::PeerWindow, |_| {});
    assert_eq!(limit.kind(), LimitKind::PeerWindow);
    assert_eq!(
        limit.to_string(),
        "the server's 2 MiB window: 10.5 MB/s at 200 ms"
    );
    // After 290 ms, and after 310: a round trip and a half is 300.
    let limit = upload((2 << 20) * 100 / 29, Wait::PeerWindow, |_| {});
    assert_eq!(limit.kind(), LimitKind::PeerWindow);
    let limit = upload((2 << 20) * 100 / 31, Wait::PeerWindow, |_| {});
    assert_eq!(limit.kind(), LimitKind::RemoteProcessing);
}

#[test]
fn answers_that_stood_behind_a_retransmission_are_late_by_tcp_s_doing() {
    for wait in [Wait::PeerWindow, Wait::Replies] {
        let of = |busy: u64, again: u64| {
            let limit = upload(1_000_000, wait, |sample| {
                sample.lanes.replies += 1;
                tcp(sample).busy = Some(ms(busy));
                tcp(sample).bytes_sent = Some(1_000_000);
                tcp(sample).bytes_retrans = Some(again);
            });
            limit.kind()
        };
        assert_eq!(of(750, 100), LimitKind::TcpCongestion, "{wait:?}");
        assert_eq!(of(750, 99), LimitKind::RemoteProcessing, "{wait:?}");
        // All was acknowledged, and then it took its time.
        assert_eq!(of(749, 100), LimitKind::RemoteProcessing, "{wait:?}");
    }
}

#[test]
fn no_credit_while_the_kernel_is_behind_is_tcp_s_doing() {
    let of = |is_app_limited| {
        let mut before = start();
        tcp(&mut before).notsent_bytes = Some(400_000);
        tcp(&mut before).is_delivery_app_limited = Some(is_app_limited);
        let after = later(&before, Wait::PeerWindow, |s| s.sent += 10_485_760);
        let mut meter = Meter::default();
        meter.on_sample(before);
        meter.on_sample(after);
        meter.latest().expect("ended").first.kind()
    };
    assert_eq!(of(false), LimitKind::TcpCongestion);
    // A burst that was just written.
    assert_eq!(of(true), LimitKind::PeerWindow);
    let limit = upload(10_485_760, Wait::PeerWindow, |sample| {
        tcp(sample).notsent_bytes = Some(400_000);
    });
    // Once may be chance: it counts at both ends of the interval.
    assert_eq!(limit.kind(), LimitKind::PeerWindow);
}

#[test]
fn lanes_are_counted_where_there_are_several() {
    let limit = upload(4 * 10_485_760, Wait::PeerWindow, |sample| {
        sample.lanes.busy = 4;
        sample.lanes.remote_window = 8 << 20;
    });
    assert_eq!(
        limit.to_string(),
        "the server's windows, 8 MiB on 4 channels: 41.9 MB/s at 200 ms"
    );
}

#[test]
fn a_pipeline_that_comes_back_in_a_round_trip_is_the_limit_one_that_does_not_is_the_server_s() {
    // 64 requests; a reply each 3 ms: 192 ms. Each 5 ms: 320 ms.
    let of = |millis: u64| {
        upload(10_000_000, Wait::Requests, |sample| {
            sample.lanes.outstanding_bytes_max = 2 << 20;
            sample.lanes.replies += 1000 / millis;
        })
    };
    assert_eq!(of(3).kind(), LimitKind::RequestsOutstanding);
    assert_eq!(
        of(3).to_string(),
        "2 MiB of requests in flight: 10 MB/s at 200 ms"
    );
    assert_eq!(of(5).kind(), LimitKind::RemoteProcessing);
    assert!(of(5).to_string().ends_with("it answers after 320 ms"));
}

#[test]
fn a_download_that_uses_its_window_up_each_round_trip_is_limited_by_it() {
    // 4 MiB of window: 3/4 of it per 200 ms are 15.7 MB/s.
    let of = |rate: u64| {
        download(rate, |sample| {
            sample.lanes.local_window = 4 << 20;
            sample.budget_limited += ms(100);
            sample.lanes.replies += 320;
        })
    };
    assert_eq!(of(15_800_000).kind(), LimitKind::CreditBudget);
    assert!(of(15_800_000).to_string().contains("memory budget"));
    assert_ne!(of(15_600_000).kind(), LimitKind::CreditBudget);
}

#[test]
fn a_download_that_uses_its_requests_up_each_round_trip_is_limited_by_them() {
    let of = |rate: u64| {
        download(rate, |sample| {
            sample.lanes.outstanding_bytes_max = 1 << 20;
            sample.lanes.replies += 100;
        })
    };
    assert_eq!(of(5_200_000).kind(), LimitKind::RequestsOutstanding);
    assert_ne!(of(2_000_000).kind(), LimitKind::RequestsOutstanding);
}

#[test]
fn a_small_tcp_window_of_ours_limits_a_download() {
    let of = |window: u32| {
        let mut first = start();
        tcp(&mut first).rcv_wnd = Some(window);
        steady(first, 5_200_000, |sample| sample.lanes.replies += 100)
    };
    let limit = of(1 << 20);
    assert_eq!(limit.kind(), LimitKind::TcpReceiveWindow);
    assert!(limit.to_string().starts_with("our 1 MiB TCP"), "{limit}");
    assert_ne!(of(4 << 20).kind(), LimitKind::TcpReceiveWindow);
}

#[test]
fn a_download_whose_bytes_queue_on_the_way_is_limited_by_the_path() {
    // 64 requests, each answered after 0.64 s.
    let slow = |change: fn(&mut Sample)| {
        download(10_000_000, |sample| {
            sample.lanes.replies += 100;
            change(sample);
        })
    };
    assert_eq!(slow(|_| {}).kind(), LimitKind::RemoteProcessing);
    let lossy = slow(|sample| {
        tcp(sample).bytes_received = Some(10_000_000);
        tcp(sample).rcv_ooopack = Some(69);
    });
    assert_eq!(lossy.kind(), LimitKind::TcpCongestion);
    assert!(lossy.to_string().contains("1.00% out of order"), "{lossy}");
    let queued = slow(|sample| tcp(sample).rtt = ms(260));
    assert_eq!(queued.kind(), LimitKind::TcpCongestion);
    // 10 ms late: 100 kB were in front of the pong. 9 ms: 90 kB.
    let behind = slow(|sample| sample.pong = Some(ms(209)));
    assert_eq!(behind.kind(), LimitKind::TcpCongestion);
    let prompt = slow(|sample| sample.pong = Some(ms(208)));
    assert_eq!(prompt.kind(), LimitKind::RemoteProcessing);
    // On a path that is as late by itself at times.
    let shaky = slow(|sample| {
        sample.pong = Some(ms(209));
        tcp(sample).rttvar = ms(11);
    });
    assert_eq!(shaky.kind(), LimitKind::RemoteProcessing);
}

#[test]
fn a_download_whose_rate_still_grows_waits_for_tcp_to_find_the_path_s() {
    let of = |is_reading| {
        one_interval(Wait::Replies, |sample| {
            sample.received += 10_000_000;
            sample.lanes.replies += 100;
            sample.lanes.is_reading = is_reading;
        })
    };
    assert_eq!(of(true).kind(), LimitKind::TcpCongestion);
    // Replies to something else.
    assert_eq!(of(false).kind(), LimitKind::RemoteProcessing);
}

#[test]
fn a_socket_that_paces_what_windows_let_through_waits_for_the_windows() {
    let of = |credit: u64, cwnd: u32, again, rtt| {
        upload(10_485_760, Wait::PeerWindow, |sample| {
            sample.waits = WaitTimes::default();
            sample.waits.add(Wait::PeerWindow, ms(credit));
            sample.waits.add(Wait::Socket, ms(980 - credit));
            tcp(sample).bytes_sent = Some(10_485_760);
            tcp(sample).bytes_retrans = Some(again);
            tcp(sample).snd_cwnd = cwnd;
            tcp(sample).rtt = ms(rtt);
        })
        .kind()
    };
    assert_eq!(of(125, 1449, 0, 200), LimitKind::PeerWindow);
    assert_eq!(of(124, 1449, 0, 200), LimitKind::TcpCongestion);
    // 2 MiB are 1,449 segments.
    assert_eq!(of(125, 1448, 0, 200), LimitKind::TcpCongestion);
    assert_eq!(of(125, 1449, 10_485, 200), LimitKind::TcpCongestion);
    assert_eq!(of(125, 1449, 0, 249), LimitKind::TcpCongestion);
}

#[test]
fn a_blocked_socket_is_split_by_what_the_kernel_waited_for() {
    let of = |receiver: u64, buffer: u64| {
        upload(25_000_000, Wait::Socket, |sample| {
            tcp(sample).busy = Some(ms(1000));
            tcp(sample).rwnd_limited = Some(ms(receiver));
            tcp(sample).sndbuf_limited = Some(ms(buffer));
            tcp(sample).bytes_sent = Some(25_000_000);
            tcp(sample).bytes_retrans = Some(250_000);
        })
    };
    assert_eq!(of(900, 50).kind(), LimitKind::TcpReceiveWindow);
    assert_eq!(of(50, 900).kind(), LimitKind::SendBuffer);
    let path = of(50, 50);
    assert_eq!(path.kind(), LimitKind::TcpCongestion);
    assert!(path.to_string().ends_with("1.00% lost"), "{path}");
    // Just more than half goes first.
    assert_eq!(of(501, 0).kind(), LimitKind::TcpReceiveWindow);
    assert_eq!(of(499, 0).kind(), LimitKind::TcpCongestion);
}

#[test]
fn a_window_or_buffer_that_is_used_up_each_round_trip_is_behind_the_rest_too() {
    // 1 MB per 200 ms.
    let of = |window: u32, buffer: u64| {
        let mut before = start();
        tcp(&mut before).snd_wnd = Some(window);
        before.send_buffer = Some(buffer);
        let after = later(&before, Wait::Socket, |sample| {
            sample.sent += 5_000_000;
            tcp(sample).busy = Some(ms(1000));
            tcp(sample).rwnd_limited = Some(ms(300));
        });
        let mut meter = Meter::default();
        meter.on_sample(before);
        meter.on_sample(after);
        meter.latest().expect("ended").first.kind()
    };
    assert_eq!(of(1_333_000, 64 << 20), LimitKind::TcpReceiveWindow);
    assert_eq!(of(1_334_000, 64 << 20), LimitKind::TcpCongestion);
    assert_eq!(of(8 << 20, 2_660_000), LimitKind::SendBuffer);
    assert_eq!(of(8 << 20, 2_680_000), LimitKind::TcpCongestion);
}

#[test]
fn a_large_receive_window_that_is_closed_is_not_read_by_the_far_end() {
    // 8 MiB of window, 2 MB/s at 200 ms: 400 kB in flight.
    let limit = upload(2_000_000, Wait::Socket, |sample| {
        tcp(sample).busy = Some(ms(1000));
        tcp(sample).rwnd_limited = Some(ms(900));
        tcp(sample).snd_wnd = Some(0);
    });
    assert_eq!(limit.kind(), LimitKind::RemoteProcessing);
}

#[test]
fn silence_is_called_so_after_two_seconds() {
    let of = |quiet: u64| one_interval(Wait::Replies, |sample| sample.quiet = ms(quiet)).kind();
    assert_eq!(of(1999), LimitKind::RemoteProcessing);
    assert_eq!(of(2000), LimitKind::RemoteSilent);
    let moving = one_interval(Wait::Socket, |sample| {
        sample.quiet = ms(5000);
        tcp(sample).bytes_acked = Some(1);
    });
    assert_eq!(moving.kind(), LimitKind::TcpCongestion, "a slow path");
    let stuck = one_interval(Wait::PeerWindow, |sample| sample.quiet = ms(5000));
    assert_eq!(stuck.kind(), LimitKind::RemoteSilent);
    let text = one_interval(Wait::Requests, |sample| sample.quiet = ms(4000)).to_string();
    assert_eq!(
        text,
        "the server's silence: nothing for 4.0 s, 64 requests wait"
    );
}

#[test]
fn the_user_s_limit_is_named() {
    let limit = upload(1_000_000, Wait::RateLimit, |sample| {
        sample.rate_limit = Some(1_000_000);
    });
    assert_eq!(limit, Limit::RateLimit { rate: 1_000_000 });
    assert_eq!(limit.to_string(), "the chosen limit of 1 MB/s");
}

/// A second with so much of it running, ready, and in reads; the rest asleep for credit.
fn worked(running: u64, waiting: u64, reading: u64, asleep: u64) -> Interval {
    let before = start();
    let mut after = before;
    after.at = before.at + SECOND;
    after.sent += 10_485_760;
    after.thread.running = ms(running);
    after.thread.waiting = ms(waiting);
    after.disk.reading = ms(reading);
    after.waits.add(Wait::PeerWindow, ms(asleep));
    let mut meter = Meter::default();
    meter.on_sample(before);
    meter.on_sample(after);
    meter.latest().expect("ended").clone()
}

#[test]
fn the_processor_limits_what_runs_most_of_the_time() {
    let limit = worked(600, 0, 0, 400).first;
    assert_eq!(
        limit.to_string(),
        "this machine's processor: one thread ran 60% of the time"
    );
    assert_eq!(worked(400, 0, 0, 600).first.kind(), LimitKind::PeerWindow);
}

#[test]
fn waiting_for_a_processor_counts_even_while_the_thread_looks_asleep() {
    let interval = worked(100, 700, 0, 850);
    assert_eq!(interval.first.kind(), LimitKind::Cpu);
    assert!(interval.first.to_string().starts_with("other programs"));
    assert_eq!(
        interval.shares,
        [(LimitKind::Cpu, 800), (LimitKind::PeerWindow, 200)]
    );
}

#[test]
fn a_read_that_does_not_run_waits_for_the_disk_one_that_does_copies() {
    let interval = worked(100, 0, 800, 150);
    assert_eq!(interval.first, Limit::DiskRead { share: 750 });
    // All of it from the page cache.
    assert_eq!(worked(850, 0, 800, 150).first.kind(), LimitKind::Cpu);
}

#[test]
fn writes_are_told_from_reads() {
    let before = start();
    let mut after = before;
    after.at = before.at + SECOND;
    after.disk.writing = ms(900);
    after.disk.reading = ms(100);
    let mut meter = Meter::default();
    meter.on_sample(before);
    meter.on_sample(after);
    let interval = meter.latest().expect("ended");
    assert_eq!(interval.first, Limit::DiskWrite { share: 900 });
    assert_eq!(interval.busy(), 1000);
}

#[test]
fn shares_add_up_and_an_idle_connection_is_limited_by_nothing() {
    let interval = worked(300, 0, 100, 550);
    let sum: u16 = interval.shares.iter().map(|(_, share)| share).sum();
    assert_eq!(sum, 1000 - 50, "50 ms at work that nobody accounts for");
    assert_eq!(one_interval(Wait::Idle, |_| {}), Limit::Nothing);
}

#[test]
fn what_is_shown_changes_when_it_has_changed_not_when_it_wavers() {
    let mut meter = Meter::default();
    let mut sample = start();
    meter.on_sample(sample);
    let mut next = |window: u64, running: u64| {
        sample.at += SECOND;
        sample.sent += 10_485_760;
        sample.waits.add(Wait::PeerWindow, ms(window));
        sample.thread.running += ms(running);
        meter.on_sample(sample);
        let interval = meter.latest().expect("ended");
        (interval.first.kind(), interval.steady.kind())
    };
    let (window, cpu) = (LimitKind::PeerWindow, LimitKind::Cpu);
    assert_eq!(next(600, 400), (window, window));
    assert_eq!(next(400, 600), (cpu, window));
    assert_eq!(next(600, 400), (window, window));
    assert_eq!(next(400, 600), (cpu, window));
    assert_eq!(next(400, 600), (cpu, cpu), "twice in a row");
    assert_eq!(next(800, 200), (window, window), "nearly all of the time");
    assert_eq!(next(0, 700), (cpu, cpu), "the window does not limit at all");
}

#[test]
fn totals_name_what_held_longest_with_the_evidence_of_its_longest_interval() {
    let mut meter = Meter::default();
    let mut sample = start();
    meter.on_sample(sample);
    for (sent, window, running) in [(1 << 20, 500, 500), (10_485_760, 900, 100), (0, 0, 1000)] {
        sample.at += SECOND;
        sample.sent += sent;
        sample.waits.add(Wait::PeerWindow, ms(window));
        sample.thread.running += ms(running);
        meter.on_sample(sample);
    }
    let first = meter.totals().first().expect("some");
    // 1.6 s of 3 s, of the processor; of the windows the far end's slowness is told apart.
    assert_eq!((first.0.kind(), first.1), (LimitKind::Cpu, 533));
    let kinds: Vec<_> = meter
        .totals()
        .ranking()
        .iter()
        .map(|(l, _)| l.kind())
        .collect();
    assert_eq!(
        kinds,
        [
            LimitKind::Cpu,
            LimitKind::PeerWindow,
            LimitKind::RemoteProcessing
        ]
    );
}

#[test]
fn of_equal_intervals_the_last_tells_unless_little_moved() {
    let mut meter = Meter::default();
    let mut sample = start();
    meter.on_sample(sample);
    for (sent, wait) in [
        (8 << 20, 980),
        (6 << 20, 980),
        (2 << 20, 980),
        (3 << 20, 900),
    ] {
        sample.at += SECOND;
        sample.sent += sent;
        sample.waits.add(Wait::Socket, ms(wait));
        meter.on_sample(sample);
    }
    let (limit, _) = meter.totals().first().expect("some");
    assert_eq!(limit.rate(), Some(6 << 20), "{limit}");
}

#[test]
fn a_pause_belongs_to_no_interval() {
    let mut meter = Meter::default();
    let mut sample = start();
    assert_eq!(meter.poll_timeout(), None);
    meter.on_sample(sample);
    assert_eq!(
        meter.poll_timeout(),
        Some(sample.at + ms(800)),
        "4 x 200 ms"
    );
    sample.at += SECOND;
    sample.waits.add(Wait::PeerWindow, SECOND);
    sample.sent += 10_485_760;
    meter.pause(sample);
    assert!(!meter.is_running() && meter.poll_timeout().is_none());
    sample.at += 100 * SECOND;
    meter.on_sample(sample);
    let held: Duration = meter.totals().ranking().iter().map(|(_, t)| *t).sum();
    assert_eq!(held, SECOND);
    assert_eq!(meter.latest().expect("ended").number, 1);
}

#[test]
fn intervals_are_long_enough_for_the_path_and_short_enough_for_a_person() {
    let length = |rtt: u64| {
        let mut meter = Meter::default();
        let mut sample = start();
        tcp(&mut sample).rtt = ms(rtt);
        meter.on_sample(sample);
        meter.poll_timeout().expect("running") - Instant::ZERO
    };
    assert_eq!(
        (length(1), length(100), length(500)),
        (ms(250), ms(400), ms(1000))
    );
}

#[test]
fn every_limit_has_a_name_of_its_own_and_evidence() {
    let mut names: Vec<_> = LimitKind::ALL.iter().map(|kind| kind.name()).collect();
    names.dedup();
    assert_eq!(names.len(), LimitKind::ALL.len());
    for (number, kind) in LimitKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, number);
    }
    let limit = upload(10_485_760, Wait::PeerWindow, |_| {});
    assert_eq!(
        limit.evidence(),
        [
            ("window_bytes", Evidence::Count(2 << 20)),
            ("lanes", Evidence::Count(1)),
            ("bytes_per_second", Evidence::Count(10_485_760)),
            ("rtt_ms", Evidence::Number(200.0)),
        ]
    );
}

#[test]
fn behind_a_relay_pings_tell_the_round_trip_and_tcp_s_windows_nothing() {
    let relayed = |wait, pong: u64| {
        upload(10_485_760, wait, move |sample| {
            tcp(sample).rtt = Duration::from_micros(50);
            tcp(sample).busy = Some(ms(1000));
            tcp(sample).rwnd_limited = Some(ms(900));
            sample.pong_min = Some(ms(pong));
            sample.is_tcp_local = true;
        })
    };
    let limit = relayed(Wait::PeerWindow, 200);
    assert_eq!(
        limit.to_string(),
        "the server's 2 MiB window: 10.5 MB/s at 200 ms"
    );
    assert_eq!(relayed(Wait::Socket, 200).kind(), LimitKind::TcpCongestion);
    // Not later than TCP's own figures allow: there is no relay, and the far end is slow.
    let direct = relayed(Wait::PeerWindow, 5);
    assert_eq!(direct.kind(), LimitKind::RemoteProcessing);
    // A server far away, whose pings all stood behind what is sent.
    let queued = upload(10_485_760, Wait::PeerWindow, |sample| {
        sample.pong_min = Some(ms(900));
    });
    assert!(
        queued.to_string().ends_with("10.5 MB/s at 200 ms"),
        "{queued}"
    );
}
