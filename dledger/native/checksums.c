/* CRC-32C (Castagnoli) and CRC-32 (ISO-HDLC): by instructions of x86-64 or ARM where there are some, else by tables,
 * eight bytes a step.
 *
 * The way is chosen when the module is loaded, never at compile time: a wheel runs on processors without them.
 * PORTABLE_CHECKSUMS compiles the tables alone, for tests of them.
 */

#include "kernels.h"

#define CRC32C UINT32_C(0x82F63B78)
#define CRC32 UINT32_C(0xEDB88320)

static uint32_t crc32c_table[8][256], crc32_table[8][256];

static void
fill(uint32_t table[8][256], uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        }
        table[0][byte] = crc;
    }
    for (int more = 1; more < 8; more++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = table[more - 1][byte];
            table[more][byte] = crc >> 8 ^ table[0][crc & 0xFF];
        }
    }
}

static void
fill_tables(void)
{
    fill(crc32c_table, CRC32C);
    fill(crc32_table, CRC32);
}

/* Continue a checksum, neither inverted before nor after. */
static uint32_t
continue_by_table(uint32_t table[8][256], uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; size -= 8, data += 8) {
        crc ^= (uint32_t)data[3] << 24 | (uint32_t)data[2] << 16 | (uint32_t)data[1] << 8 | data[0];
        crc = table[7][crc & 0xFF] ^ table[6][crc >> 8 & 0xFF] ^ table[5][crc >> 16 & 0xFF] ^ table[4][crc >> 24]
            ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    for (; size > 0; size--, data++) {
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 0xFF];
    }
    return crc;
}

static uint32_t
crc32c_by_table(const uint8_t *data, size_t size)
{
    return ~continue_by_table(crc32c_table, UINT32_MAX, data, size);
}

static uint32_t
crc32_by_table(const uint8_t *data, size_t size)
{
    return ~continue_by_table(crc32_table, UINT32_MAX, data, size);
}

static uint32_t (*chosen_crc32c)(const uint8_t *, size_t) = crc32c_by_table;
static uint32_t (*chosen_crc32)(const uint8_t *, size_t) = crc32_by_table;

uint32_t
crc32c(const uint8_t *data, size_t size)
{
    return chosen_crc32c(data, size);
}

uint32_t
crc32(const uint8_t *data, size_t size)
{
    return chosen_crc32(data, size);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(PORTABLE_CHECKSUMS)

#include <nmmintrin.h>
#include <wmmintrin.h>

#define BLOCK 16
#define LANES 4

__attribute__((target("sse4.2"))) static uint32_t
crc32c_by_instruction(const uint8_t *data, size_t size)
{
    uint64_t crc = UINT32_MAX, word;
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&word, data, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; size > 0; size--, data++) {
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    }
    return ~(uint32_t)crc;
}

/* Factors that move a block over the next one, and over the next `LANES`. */
static uint64_t near_factors[2], far_factors[2];

/* x^bits modulo the polynomial of CRC-32, as a factor of a carry-less product: lowest power first, and one bit to the
 * left, because the product of two reflected numbers is reflected in one bit less. */
static uint64_t
power(int bits)
{
    uint32_t value = UINT32_C(1) << 31;
    for (; bits > 0; bits--) {
        value = value & 1 ? value >> 1 ^ CRC32 : value >> 1;
    }
    return (uint64_t)value << 1;
}

/* The 64 bits that come first in a block are by 64 powers higher; 32 powers belong to the checksum itself. */
static void
fill_factors(uint64_t factors[2], int bits)
{
    factors[0] = power(bits + 32);
    factors[1] = power(bits - 32);
}

__attribute__((target("pclmul"))) static inline __m128i
moved(__m128i block, __m128i factors)
{
    return _mm_xor_si128(_mm_clmulepi64_si128(block, factors, 0x00), _mm_clmulepi64_si128(block, factors, 0x11));
}

__attribute__((target("pclmul"))) static inline __m128i
block_at(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)(const void *)data);
}

/* Bytes are replaced by fewer with the same remainder: each block is moved over the next one and added to it. `LANES`
 * blocks at a time do not wait for one another. The table does the last block and what is left. */
__attribute__((target("pclmul"))) static uint32_t
crc32_by_products(const uint8_t *data, size_t size)
{
    if (size < LANES * BLOCK) {
        return crc32_by_table(data, size);
    }
    __m128i lanes[LANES], near = block_at((const uint8_t *)near_factors), far = block_at((const uint8_t *)far_factors);
    for (int lane = 0; lane < LANES; lane++) {
        lanes[lane] = block_at(data + lane * BLOCK);
    }
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(-1));
    data += LANES * BLOCK;
    size -= LANES * BLOCK;
    for (; size >= LANES * BLOCK; size -= LANES * BLOCK, data += LANES * BLOCK) {
        for (int lane = 0; lane < LANES; lane++) {
            lanes[lane] = _mm_xor_si128(moved(lanes[lane], far), block_at(data + lane * BLOCK));
        }
    }
    __m128i all = lanes[0];
    for (int lane = 1; lane < LANES; lane++) {
        all = _mm_xor_si128(moved(all, near), lanes[lane]);
    }
    for (; size >= BLOCK; size -= BLOCK, data += BLOCK) {
        all = _mm_xor_si128(moved(all, near), block_at(data));
    }
    uint8_t last[BLOCK];
    _mm_storeu_si128((__m128i *)(void *)last, all);
    return ~continue_by_table(crc32_table, continue_by_table(crc32_table, 0, last, BLOCK), data, size);
}

void
choose_checksums(void)
{
    fill_tables();
    fill_factors(near_factors, 8 * BLOCK);
    fill_factors(far_factors, 8 * BLOCK * LANES);
    if (__builtin_cpu_supports("sse4.2")) {
        chosen_crc32c = crc32c_by_instruction;
    }
    if (__builtin_cpu_supports("pclmul")) {
        chosen_crc32 = crc32_by_products;
    }
}

#elif defined(__aarch64__) && defined(__linux__) && defined(__ARM_FEATURE_CRC32) && !defined(PORTABLE_CHECKSUMS)

/* Compilers define __ARM_FEATURE_CRC32 where every processor that they compile for has the instructions. */
#include <arm_acle.h>

static uint32_t
crc32c_by_instruction(const uint8_t *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    uint64_t word;
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&word, data, 8);
        crc = __crc32cd(crc, word);
    }
    for (; size > 0; size--, data++) {
        crc = __crc32cb(crc, *data);
    }
    return ~crc;
}

static uint32_t
crc32_by_instruction(const uint8_t *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    uint64_t word;
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&word, data, 8);
        crc = __crc32d(crc, word);
    }
    for (; size > 0; size--, data++) {
        crc = __crc32b(crc, *data);
    }
    return ~crc;
}

void
choose_checksums(void)
{
    fill_tables();
    chosen_crc32c = crc32c_by_instruction;
    chosen_crc32 = crc32_by_instruction;
}

#else

void
choose_checksums(void)
{
    fill_tables();
}

#endif
