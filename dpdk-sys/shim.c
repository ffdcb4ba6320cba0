/* SPDX-License-Identifier: Apache-2.0
 * What Rust cannot call itself: inline functions, macros, thread-local variables, bit-fields.
 *
 * A call through here costs about 1 ns, so bursts go through it whole. RX and TX bursts do not come here:
 * Rust calls the drivers' functions from rte_eth_fp_ops.
 */
#include "wrapper.h"

/* rte_errno is thread-local: a binding to per_lcore__rte_errno links and then crashes. */
int shim_errno(void)
{
	return rte_errno;
}

unsigned int shim_lcore_id(void)
{
	return rte_lcore_id();
}

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **out, unsigned int count)
{
	unsigned int i;

	/* As rte_pktmbuf_alloc_bulk, but the misses of what others have freed overlap. */
	if (rte_mempool_get_bulk(pool, (void **)out, count) != 0)
		return -ENOENT;
	for (i = 0; i < count; i++) {
		rte_prefetch0(out[i]);
		rte_prefetch0((char *)out[i] + RTE_CACHE_LINE_SIZE);
	}
	for (i = 0; i < count; i++)
		rte_pktmbuf_reset(out[i]);
	return 0;
}

void shim_pktmbuf_free(struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
}

unsigned int shim_ring_sp_enqueue_burst(struct rte_ring *r, void *const *objects, unsigned int count)
{
	return rte_ring_sp_enqueue_burst(r, objects, count, NULL);
}

unsigned int shim_ring_sc_dequeue_burst(struct rte_ring *r, void **objects, unsigned int count)
{
	return rte_ring_sc_dequeue_burst(r, objects, count, NULL);
}

unsigned int shim_ring_count(const struct rte_ring *r)
{
	return rte_ring_count(r);
}

/* struct rte_eth_link has bit-fields, and became a union after 22.11. */
int shim_link_get(uint16_t port, uint32_t *mbps, int *up)
{
	struct rte_eth_link link = { 0 };
	int ret = rte_eth_link_get_nowait(port, &link);

	*mbps = link.link_speed;
	*up = link.link_status == RTE_ETH_LINK_UP;
	return ret;
}

static ssize_t log_write(void *cookie, const char *text, size_t length)
{
	shim_log_write write = (shim_log_write)(uintptr_t)cookie;
	int level = rte_log_cur_msg_loglevel();

	write(level < 0 ? RTE_LOG_INFO : (unsigned int)level, text, length);
	return (ssize_t)length;
}

int shim_log_open(shim_log_write write)
{
	cookie_io_functions_t functions = { .write = log_write };
	FILE *stream = fopencookie((void *)(uintptr_t)write, "w", functions);

	if (stream == NULL)
		return -1;
	setvbuf(stream, NULL, _IOLBF, 0);
	return rte_openlog_stream(stream);
}
