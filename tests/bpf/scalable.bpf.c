// SPDX-License-Identifier: GPL-2.0
/*
 * A minimal scalable congestion control for the kernel's own TCP, as BPF struct_ops, to put real L4S traffic
 * through Sluice. Once a round trip: alpha += (F - alpha)/16 with F the share of bytes delivered with CE (AccECN),
 * then cwnd -= cwnd * alpha/2 if there was a mark; otherwise one segment more. Loss halves. The kernel paces.
 * Data leaves as ECT(0); the rig rewrites it to ECT(1) (nftables), the SYN is ECT(1) already.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

#define ONE (1U << 20)			/* alpha of 1 */
#define CONG_FLAGS 15			/* non-restricted, needs ECN, needs AccECN, negotiates on ECT(1) */
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))

struct scalable {
	__u32 alpha;
	__u32 next_seq;			/* the round ends when this is acknowledged */
	__u32 delivered;
	__u32 delivered_ce;
	__u32 acked;			/* segments towards the next increase */
	__u32 in_slow_start;
};

static struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static struct scalable *ca(const struct sock *sk)
{
	return (struct scalable *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static void begin_round(struct tcp_sock *tp, struct scalable *s)
{
	s->next_seq = tp->snd_nxt;
	s->delivered = tp->delivered;
	s->delivered_ce = tp->delivered_ce;
}

static void pace(struct sock *sk, struct tcp_sock *tp)
{
	__u64 srtt_us = max(tp->srtt_us >> 3, 1U);
	__u64 rate = (__u64)tp->snd_cwnd * tp->mss_cache * 1000000 / srtt_us;

	/* twice the window's rate while it still doubles, 3 % above it afterwards */
	sk->sk_pacing_rate = ca(sk)->in_slow_start ? rate * 2 : rate + rate / 32;
}

SEC("struct_ops/scalable_init")
void BPF_PROG(scalable_init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct scalable *s = ca(sk);

	s->alpha = ONE;
	s->acked = 0;
	s->in_slow_start = 1;
	begin_round(tp, s);
	sk->sk_pacing_status = 1;	/* SK_PACING_NEEDED: the kernel's internal pacing */
}

SEC("struct_ops/scalable_ssthresh")
__u32 BPF_PROG(scalable_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	ca(sk)->in_slow_start = 0;
	return max(tp->snd_cwnd >> 1, 2U);
}

SEC("struct_ops/scalable_undo_cwnd")
__u32 BPF_PROG(scalable_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	return max(tp->snd_cwnd, tp->prior_cwnd);
}

static void end_round(struct tcp_sock *tp, struct scalable *s)
{
	__u32 delivered = tp->delivered - s->delivered;
	__u32 marked = min(tp->delivered_ce - s->delivered_ce, delivered);

	if (delivered)
		s->alpha += ((__u64)marked * ONE / delivered >> 4) - (s->alpha >> 4);
	if (marked) {
		if (s->in_slow_start)
			s->alpha = ONE;
		s->in_slow_start = 0;
		tp->snd_cwnd = max(tp->snd_cwnd - (__u32)((__u64)tp->snd_cwnd * s->alpha >> 21), 2U);
		tp->snd_ssthresh = tp->snd_cwnd;
		s->acked = 0;
	}
	begin_round(tp, s);
}

SEC("struct_ops/scalable_cong_control")
void BPF_PROG(scalable_cong_control, struct sock *sk, __u32 ack, int flag, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct scalable *s = ca(sk);
	__u32 acked = rs->acked_sacked;

	if (rs->losses > 0 && s->in_slow_start) {
		s->in_slow_start = 0;
		tp->snd_cwnd = max(tp->snd_cwnd >> 1, 2U);
	}
	if ((__s32)(tp->snd_una - s->next_seq) >= 0)
		end_round(tp, s);
	/* an application that does not fill the window must not grow it */
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited)) {
		if (s->in_slow_start) {
			tp->snd_cwnd += acked;
		} else {
			s->acked += acked;
			if (s->acked >= tp->snd_cwnd) {
				s->acked -= tp->snd_cwnd;
				tp->snd_cwnd++;
			}
		}
	}
	tp->snd_cwnd = min(tp->snd_cwnd, tp->snd_cwnd_clamp);
	pace(sk, tp);
}

SEC("struct_ops/scalable_set_state")
void BPF_PROG(scalable_set_state, struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (state == 3) {		/* TCP_CA_Recovery */
		tp->snd_cwnd = max(tp->snd_cwnd >> 1, 2U);
		tp->snd_ssthresh = tp->snd_cwnd;
		ca(sk)->in_slow_start = 0;
	} else if (state == 4) {	/* TCP_CA_Loss */
		tp->snd_cwnd = 2;
		ca(sk)->alpha = ONE;
	}
}

SEC(".struct_ops")
struct tcp_congestion_ops scalable = {
	.init = (void *)scalable_init,
	.ssthresh = (void *)scalable_ssthresh,
	.undo_cwnd = (void *)scalable_undo_cwnd,
	.cong_control = (void *)scalable_cong_control,
	.set_state = (void *)scalable_set_state,
	.flags = CONG_FLAGS,
	.name = "sluicescal",
};
