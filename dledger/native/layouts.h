/* Layouts and hashes that several kernels use: dledger/entries/format/entry.py, commitlog/record/record.py and
 * store/model/java_hash.py. */

#ifndef DLEDGER_LAYOUTS_H
#define DLEDGER_LAYOUTS_H

#include <stdint.h>

/* The header of an entry, and the magic of a client's. In the replicated log a record is the body of an entry. */
#define HEADER_SIZE 48
#define ENTRY_NORMAL 1

/* A record with two IPv4 hosts has 88 bytes before its body; then come the body, the topic with its length of one byte
 * (V2: two), and the properties with their length. */
#define MAGIC_V1 UINT32_C(0xDAA320A7)
#define MAGIC_V2 UINT32_C(0xDAA320AB)
#define FIELDS_SIZE 88
#define LENGTH_SIZE 2
#define RECORD_SIZE_MIN (FIELDS_SIZE + 1 + LENGTH_SIZE)

/* Bits of the system flag. */
#define BORN_HOST_IPV6 0x10
#define STORE_HOST_IPV6 0x20
#define CARRIES_EFFECT 0x40400000

#define JAVA_FACTOR 31

/* Continue Java's hash of a text with `size` bytes of ASCII; 0: they are not ASCII. */
static inline int
hash_ascii(uint32_t *hash, const uint8_t *data, int64_t size)
{
    uint32_t value = *hash;
    uint8_t all = 0;
    for (int64_t i = 0; i < size; i++) {
        value = value * JAVA_FACTOR + data[i];
        all |= data[i];
    }
    *hash = value;
    return all < 0x80;
}

/* `positive_hash`: Java's absolute value, and 0 for the number that has none. */
static inline uint32_t
positive_hash(uint32_t hash)
{
    return hash == UINT32_C(1) << 31 ? 0 : hash >> 31 ? -hash : hash;
}

#endif
