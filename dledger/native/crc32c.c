/* CRC-32C (Castagnoli): by the instruction of x86-64 or ARM where there is one, else by tables, eight bytes a step.
 *
 * The instruction is chosen when the module is loaded, never at compile time: a wheel runs on processors without it.
 * PORTABLE_CRC32C compiles the tables alone, for tests of them.
 */

#include "kernels.h"

#define POLYNOMIAL UINT32_C(0x82F63B78)

static uint32_t table[8][256];

static void
fill_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
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

static uint32_t
by_table(const uint8_t *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (; size >= 8; size -= 8, data += 8) {
        crc ^= (uint32_t)data[3] << 24 | (uint32_t)data[2] << 16 | (uint32_t)data[1] << 8 | data[0];
        crc = table[7][crc & 0xFF] ^ table[6][crc >> 8 & 0xFF] ^ table[5][crc >> 16 & 0xFF] ^ table[4][crc >> 24]
            ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    for (; size > 0; size--, data++) {
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 0xFF];
    }
    return ~crc;
}

static uint32_t (*chosen)(const uint8_t *, size_t) = by_table;

uint32_t
crc32c(const uint8_t *data, size_t size)
{
    return chosen(data, size);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(PORTABLE_CRC32C)

#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t
by_instruction(const uint8_t *data, size_t size)
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

void
choose_crc32c(void)
{
    fill_table();
    if (__builtin_cpu_supports("sse4.2")) {
        chosen = by_instruction;
    }
}

#elif defined(__aarch64__) && defined(__linux__) && defined(__ARM_FEATURE_CRC32) && !defined(PORTABLE_CRC32C)

/* Compilers define __ARM_FEATURE_CRC32 where every processor that they compile for has the instruction. */
#include <arm_acle.h>

static uint32_t
by_instruction(const uint8_t *data, size_t size)
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

void
choose_crc32c(void)
{
    chosen = by_instruction;
}

#else

void
choose_crc32c(void)
{
    fill_table();
}

#endif
