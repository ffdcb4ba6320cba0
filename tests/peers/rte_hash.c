// SPDX-License-Identifier: Apache-2.0
// The peer of the table lookup: DPDK's rte_hash with 64-bit keys, looked up 32 at a time, as `make bench` runs it.
//
// rte_hash EAL... -- KEYS SECONDS: random keys that are there. Prints a line of JSON: nanoseconds a key of
// rte_hash_lookup_bulk_data, of bursts that nobody interrupted.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_version.h>

#define BURST 32
#define WINDOWS 5
#define GAP_US 100

static uint64_t seed = 88172645463325252ULL;

static uint32_t below(uint32_t end)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(((seed >> 32) * end) >> 32);
}

/* What a VLAN pair and a PPPoE session come to. */
static uint64_t key_of(uint32_t subscriber)
{
	uint64_t outer = 1 + subscriber / 4094, inner = 1 + subscriber % 4094, session = 1 + subscriber % 65534;
	return outer << 48 | inner << 32 | session;
}

static void die(const char *what, int code)
{
	fprintf(stderr, "rte_hash: %s: %d\n", what, code);
	exit(1);
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0)
		die("EAL does not start", rte_errno);
	argc -= used;
	argv += used;
	if (argc < 3)
		die("usage: KEYS SECONDS", argc);
	uint32_t keys = atoi(argv[1]);
	double seconds = atof(argv[2]);
	struct rte_hash_parameters params = {.name = "bench", .entries = keys + keys / 4 + 64, .key_len = sizeof(uint64_t),
		.hash_func = rte_hash_crc, .socket_id = 0};
	struct rte_hash *hash = rte_hash_create(&params);
	if (hash == NULL)
		die("no memory for the table", rte_errno);
	for (uint32_t i = 0; i < keys; i++) {
		uint64_t key = key_of(i);
		int code = rte_hash_add_key_data(hash, &key, (void *)(uintptr_t)(2 * i));
		if (code < 0)
			die("a key is refused", code);
	}
	uint64_t hz = rte_get_tsc_hz(), gap = hz / 1000000 * GAP_US, gaps = 0, missed = 0;
	double ns[WINDOWS];
	for (int window = -1; window < WINDOWS; window++) {
		uint64_t end = rte_rdtsc() + (uint64_t)(hz * seconds / WINDOWS), ticks = 0, found = 0;
		while (rte_rdtsc() < end) {
			uint64_t key[BURST], hits = 0;
			const void *place[BURST];
			void *value[BURST];
			for (int i = 0; i < BURST; i++) {
				key[i] = key_of(below(keys));
				place[i] = &key[i];
			}
			uint64_t from = rte_rdtsc();
			int got = rte_hash_lookup_bulk_data(hash, place, BURST, &hits, value);
			uint64_t took = rte_rdtsc() - from;
			missed += BURST - got;
			if (took > gap) {
				gaps += window >= 0;
				continue;
			}
			ticks += took;
			found += got;
		}
		if (window >= 0)
			ns[window] = ticks * 1e9 / hz / RTE_MAX(found, 1U);
	}
	if (missed > 0)
		die("keys are missing", (int)missed);
	qsort(ns, WINDOWS, sizeof(double), ascending);
	printf("{\"case\":\"lookup\",\"version\":\"%s\",\"keys\":%u,\"ns_per_packet\":%.2f,\"least\":%.2f,\"most\":%.2f,"
	       "\"gaps\":%" PRIu64 "}\n", rte_version(), keys, ns[WINDOWS / 2], ns[0], ns[WINDOWS - 1], gaps);
	return 0;
}
