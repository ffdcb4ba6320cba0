// SPDX-License-Identifier: Apache-2.0
// The peer of the engine's enqueue and dequeue: DPDK's rte_sched, one thread, as `make bench` runs it.
//
// rte_sched EAL... -- PIPES SUBPORTS QSIZE SECONDS CASE...
//   open          32 packets in, 32 out: nothing waits
//   backlog:N     the same with N packets waiting
//   plan:BPS:L:K  every pipe limited to BPS, K packets of L bytes (with FCS) waiting in each, put back as they leave; the
//                 port's rate is what the pipes add up to, less than a twentieth more
// Best effort only (one of 13 classes has queues), one packet a random pipe, nothing read of a frame. Prints a line of JSON
// for each case: nanoseconds between the TSC read before rte_sched_port_enqueue and after rte_sched_port_dequeue, for each
// packet that left. Rounds longer than GAP were interrupted by others and are left out and counted.
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_sched.h>
#include <rte_version.h>

#define BURST 32
#define OVERHEAD 24
#define WINDOWS 5
#define GAP_US 1000
#define OPEN_RATE 12500000000ULL /* bytes a second */

static uint64_t seed = 88172645463325252ULL;

static uint32_t below(uint32_t end)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(((seed >> 32) * end) >> 32);
}

struct setup {
	uint32_t pipes, subports;
	uint16_t qsize;
};

static void die(const char *what, int code)
{
	fprintf(stderr, "rte_sched: %s: %d\n", what, code);
	exit(1);
}

static uint32_t power_of_two(uint32_t n)
{
	uint32_t power = 1;
	while (power < n)
		power <<= 1;
	return power;
}

static struct rte_sched_port *port_of(const struct setup *setup, uint64_t port_rate, uint64_t pipe_rate, uint64_t bucket)
{
	const int best_effort = RTE_SCHED_TRAFFIC_CLASS_BE;
	struct rte_sched_pipe_params pipe = {
		.tb_rate = pipe_rate, .tb_size = bucket, .tc_period = 40, .tc_ov_weight = 1, .wrr_weights = {1, 1, 1, 1}};
	pipe.tc_rate[best_effort] = pipe_rate;
	struct rte_sched_subport_profile_params profile = {.tb_rate = port_rate, .tb_size = 1000000, .tc_period = 10};
	for (int i = 0; i <= best_effort; i++)
		profile.tc_rate[i] = port_rate;
	uint32_t each = setup->pipes / setup->subports;
	struct rte_sched_subport_params subport = {.n_pipes_per_subport_enabled = power_of_two(each),
		.pipe_profiles = &pipe, .n_pipe_profiles = 1, .n_max_pipe_profiles = 1};
	subport.qsize[best_effort] = setup->qsize;
	struct rte_sched_port_params params = {.name = "bench", .socket = 0, .rate = port_rate, .mtu = 1522,
		.frame_overhead = OVERHEAD, .n_subports_per_port = setup->subports, .subport_profiles = &profile,
		.n_subport_profiles = 1, .n_max_subport_profiles = 1, .n_pipes_per_subport = power_of_two(each)};
	struct rte_sched_port *port = rte_sched_port_config(&params);
	if (port == NULL)
		die("the port is refused", 0);
	for (uint32_t s = 0; s < setup->subports; s++) {
		int code = rte_sched_subport_config(port, s, &subport, 0);
		if (code != 0)
			die("not enough memory for the subports", code);
		for (uint32_t p = 0; p < each; p++)
			if ((code = rte_sched_pipe_config(port, s, p, 0)) != 0)
				die("a pipe is refused", code);
	}
	return port;
}

static void address(struct rte_sched_port *port, const struct setup *setup, struct rte_mbuf *m, uint32_t pipe)
{
	uint32_t each = setup->pipes / setup->subports;
	rte_sched_port_pkt_write(port, m, pipe / each, pipe % each, RTE_SCHED_TRAFFIC_CLASS_BE, 0, RTE_COLOR_GREEN);
}

struct figures {
	double ns[WINDOWS], all_ns[WINDOWS], mpps[WINDOWS];
	uint64_t gaps, dropped;
};

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

static void report(const char *name, const struct setup *setup, struct figures *f, uint64_t waiting, uint32_t bytes)
{
	qsort(f->ns, WINDOWS, sizeof(double), ascending);
	qsort(f->all_ns, WINDOWS, sizeof(double), ascending);
	qsort(f->mpps, WINDOWS, sizeof(double), ascending);
	printf("{\"case\":\"%s\",\"version\":\"%s\",\"pipes\":%u,\"subports\":%u,\"qsize\":%u,\"packet_bytes\":%u,"
	       "\"waiting\":%" PRIu64 ",\"ns_per_packet\":%.2f,\"least\":%.2f,\"most\":%.2f,\"polling_ns_per_packet\":%.2f,"
	       "\"mpps\":%.4f,\"gaps\":%" PRIu64 ",\"dropped\":%" PRIu64 "}\n",
	       name, rte_version(), setup->pipes, setup->subports, setup->qsize, bytes, waiting, f->ns[WINDOWS / 2], f->ns[0],
	       f->ns[WINDOWS - 1], f->all_ns[WINDOWS / 2], f->mpps[WINDOWS / 2], f->gaps, f->dropped);
	fflush(stdout);
}

/* As many in as out, to random pipes, `backlog` waiting. */
static void steady(struct rte_sched_port *port, const struct setup *setup, struct rte_mempool *pool, uint64_t backlog,
	double seconds, const char *name)
{
	struct rte_mbuf *in[BURST], *out[BURST];
	uint64_t hz = rte_get_tsc_hz(), gap = hz / 1000000 * GAP_US, waiting = 0;
	bool filled = false;
	struct figures f = {0};
	for (int window = -1; window < WINDOWS; window++) {
		uint64_t begin = rte_rdtsc(), end = begin + (uint64_t)(hz * seconds / WINDOWS), ticks = 0, left = 0;
		while (rte_rdtsc() < end || !filled) {
			if (rte_pktmbuf_alloc_bulk(pool, in, BURST) != 0)
				die("no mbuf", 0);
			for (int i = 0; i < BURST; i++) {
				in[i]->pkt_len = in[i]->data_len = 60;
				address(port, setup, in[i], below(setup->pipes));
			}
			uint64_t from = rte_rdtsc();
			int put = rte_sched_port_enqueue(port, in, BURST);
			waiting += put;
			f.dropped += BURST - put;
			filled |= waiting > backlog;
			int got = waiting > backlog ? rte_sched_port_dequeue(port, out, BURST) : 0;
			uint64_t took = rte_rdtsc() - from;
			waiting -= got;
			for (int i = 0; i < got; i++)
				rte_pktmbuf_free(out[i]);
			if (took > gap) {
				f.gaps += window >= 0;
				continue;
			}
			ticks += took;
			left += got;
		}
		if (window < 0)
			continue;
		f.ns[window] = f.all_ns[window] = ticks * 1e9 / hz / RTE_MAX(left, 1U);
		f.mpps[window] = left / ((rte_rdtsc() - begin) * 1e6 / hz);
	}
	report(name, setup, &f, waiting, 64);
}

/* `each` packets of `bytes` wait in every pipe; what leaves is put back where it was. */
static void limited(struct rte_sched_port *port, const struct setup *setup, struct rte_mempool *pool, uint32_t bytes,
	uint32_t each, double seconds, const char *name)
{
	struct rte_mbuf *out[BURST];
	uint64_t hz = rte_get_tsc_hz(), gap = hz / 1000000 * GAP_US, waiting = 0;
	for (uint32_t k = 0; k < each; k++)
		for (uint32_t pipe = 0; pipe < setup->pipes; pipe++) {
			struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
			if (m == NULL)
				die("no mbuf", 0);
			m->pkt_len = m->data_len = bytes - 4;
			address(port, setup, m, pipe);
			waiting += rte_sched_port_enqueue(port, &m, 1);
		}
	struct figures f = {0};
	for (int window = -2; window < WINDOWS; window++) {
		/* the buckets begin full: the first second is not counted */
		double span = window < 0 ? 1.0 : seconds / WINDOWS;
		uint64_t begin = rte_rdtsc(), end = begin + (uint64_t)(hz * span), busy = 0, idle = 0, left = 0;
		for (;;) {
			uint64_t from = rte_rdtsc();
			if (from >= end)
				break;
			int got = rte_sched_port_dequeue(port, out, BURST);
			if (got > 0) {
				int put = rte_sched_port_enqueue(port, out, got);
				f.dropped += got - put;
			}
			uint64_t took = rte_rdtsc() - from;
			if (took > gap) {
				f.gaps += window >= 0;
				continue;
			}
			*(got > 0 ? &busy : &idle) += took;
			left += got;
		}
		if (window < 0)
			continue;
		f.ns[window] = busy * 1e9 / hz / RTE_MAX(left, 1U);
		f.all_ns[window] = (busy + idle) * 1e9 / hz / RTE_MAX(left, 1U);
		f.mpps[window] = left / ((rte_rdtsc() - begin) * 1e6 / hz);
	}
	report(name, setup, &f, waiting, bytes);
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0)
		die("EAL does not start", rte_errno);
	argc -= used;
	argv += used;
	if (argc < 6)
		die("usage: PIPES SUBPORTS QSIZE SECONDS CASE...", argc);
	struct setup setup = {atoi(argv[1]), atoi(argv[2]), atoi(argv[3])};
	double seconds = atof(argv[4]);
	uint64_t most = 65536;
	for (int i = 5; i < argc; i++) {
		uint64_t a = 0, b = 0, c = 0;
		if (sscanf(argv[i], "backlog:%" SCNu64, &a) == 1)
			most = RTE_MAX(most, a + 65536);
		if (sscanf(argv[i], "plan:%" SCNu64 ":%" SCNu64 ":%" SCNu64, &a, &b, &c) == 3)
			most = RTE_MAX(most, c * setup.pipes + 65536);
	}
	struct rte_mempool *pool = rte_pktmbuf_pool_create("bench", most, 256, 0, RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	if (pool == NULL)
		die("no memory for packets", rte_errno);
	struct rte_sched_port *open = NULL;
	for (int i = 5; i < argc; i++) {
		uint64_t a = 0, b = 0, c = 0;
		if (sscanf(argv[i], "plan:%" SCNu64 ":%" SCNu64 ":%" SCNu64, &a, &b, &c) == 3) {
			uint64_t rate = a / 8;
			struct rte_sched_port *port = port_of(&setup, rate * setup.pipes * 20 / 19, rate, 2 * 1538);
			limited(port, &setup, pool, b, c, seconds, argv[i]);
			rte_sched_port_free(port);
			continue;
		}
		if (open == NULL)
			open = port_of(&setup, OPEN_RATE, OPEN_RATE / 4, 1000000);
		sscanf(argv[i], "backlog:%" SCNu64, &a);
		steady(open, &setup, pool, a, seconds, argv[i]);
	}
	return 0;
}
