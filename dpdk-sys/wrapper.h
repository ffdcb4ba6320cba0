/* SPDX-License-Identifier: Apache-2.0
 * What bindgen reads: DPDK's headers, the shim's functions, and constants that are macros with casts
 * (RTE_BIT64 and the like), which bindgen cannot evaluate unless a variable holds them.
 */
#ifndef SLUICE_DPDK_WRAPPER_H
#define SLUICE_DPDK_WRAPPER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

static const unsigned int K_VERSION = RTE_VERSION;
/* The folder EAL loads drivers from. */
#define K_PMD_PATH RTE_EAL_PMD_PATH
static const unsigned int K_MAX_LCORE = RTE_MAX_LCORE;
static const unsigned int K_MAX_ETHPORTS = RTE_MAX_ETHPORTS;
static const unsigned int K_MAX_QUEUES_PER_PORT = RTE_MAX_QUEUES_PER_PORT;
static const unsigned int K_PKTMBUF_HEADROOM = RTE_PKTMBUF_HEADROOM;
static const unsigned int K_MEMPOOL_CACHE_MAX_SIZE = RTE_MEMPOOL_CACHE_MAX_SIZE;
static const int K_SOCKET_ID_ANY = SOCKET_ID_ANY;
static const unsigned int K_LCORE_ID_ANY = LCORE_ID_ANY;
static const unsigned int K_LINK_SPEED_UNKNOWN = RTE_ETH_SPEED_NUM_UNKNOWN;

static const uint64_t K_RX_OFFLOAD_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t K_TX_OFFLOAD_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint64_t K_RSS_IP = RTE_ETH_RSS_IP;

static const unsigned int K_RING_F_SP_ENQ = RING_F_SP_ENQ;
static const unsigned int K_RING_F_SC_DEQ = RING_F_SC_DEQ;

static const unsigned int K_LCORE_WAIT = WAIT;
static const unsigned int K_MQ_RX_NONE = RTE_ETH_MQ_RX_NONE;
static const unsigned int K_MQ_RX_RSS = RTE_ETH_MQ_RX_RSS;

/* The layout of an mbuf, against which mbuf.rs checks its own view of it at compile time. */
static const size_t K_MBUF_SIZE = sizeof(struct rte_mbuf);
static const size_t K_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr);
static const size_t K_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off);
static const size_t K_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt);
static const size_t K_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs);
static const size_t K_MBUF_PORT = offsetof(struct rte_mbuf, port);
static const size_t K_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags);
static const size_t K_MBUF_PACKET_TYPE = offsetof(struct rte_mbuf, packet_type);
static const size_t K_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len);
static const size_t K_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len);
static const size_t K_MBUF_VLAN_TCI = offsetof(struct rte_mbuf, vlan_tci);
static const size_t K_MBUF_HASH = offsetof(struct rte_mbuf, hash);
static const size_t K_MBUF_HASH_SIZE = sizeof(((struct rte_mbuf *)0)->hash);
static const size_t K_MBUF_VLAN_TCI_OUTER = offsetof(struct rte_mbuf, vlan_tci_outer);
static const size_t K_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len);
static const size_t K_MBUF_POOL = offsetof(struct rte_mbuf, pool);
static const size_t K_MBUF_NEXT = offsetof(struct rte_mbuf, next);

/* shim.c */
int shim_errno(void);
unsigned int shim_lcore_id(void);

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool);
int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **out, unsigned int count);
void shim_pktmbuf_free(struct rte_mbuf *m);

unsigned int shim_ring_sp_enqueue_burst(struct rte_ring *r, void *const *objects, unsigned int count);
unsigned int shim_ring_sc_dequeue_burst(struct rte_ring *r, void **objects, unsigned int count);
unsigned int shim_ring_count(const struct rte_ring *r);

int shim_link_get(uint16_t port, uint32_t *mbps, int *up);

/* Sends EAL's log to `write`: the level of the message and its text, not terminated by 0. */
typedef void (*shim_log_write)(unsigned int level, const char *text, size_t length);
int shim_log_open(shim_log_write write);

#endif
