/* Texts of columns: UTF-8, hosts as `_host_text` of pipeline/columns/decoder.py, and properties as `decode_properties`
 * of commitlog/record/properties.py. */

#include "texts.h"

#define NAME_END 0x01
#define PROPERTY_END 0x02

/* ----------------------------------------------------------------------------------------------------------- UTF-8 */

/* The bytes of the character at `text`, of which `left` are there; 0: it is none. */
static int64_t
character_size(const uint8_t *text, int64_t left)
{
    uint8_t first = text[0], low = 0x80, high = 0xBF;
    int64_t size;
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xC2 && first <= 0xDF) {
        size = 2;
    }
    else if (first >= 0xE0 && first <= 0xEF) {
        size = 3;
        low = first == 0xE0 ? 0xA0 : low;
        high = first == 0xED ? 0x9F : high;
    }
    else if (first >= 0xF0 && first <= 0xF4) {
        size = 4;
        low = first == 0xF0 ? 0x90 : low;
        high = first == 0xF4 ? 0x8F : high;
    }
    else {
        return 0;
    }
    if (size > left || text[1] < low || text[1] > high) {
        return 0;
    }
    for (int64_t at = 2; at < size; at++) {
        if ((text[at] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return size;
}

static int
is_ascii(const uint8_t *text, int64_t size)
{
    uint64_t all = 0;
    int64_t at = 0;
    for (; size - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, text + at, 8);
        all |= word;
    }
    for (; at < size; at++) {
        all |= text[at];
    }
    return (all & UINT64_C(0x8080808080808080)) == 0;
}

int
are_utf8(const Texts *texts, int64_t count)
{
    if (is_ascii(texts->data, texts->at)) {
        return 1;
    }
    for (int64_t at = 0; at < texts->at;) {
        int64_t size = character_size(texts->data + at, texts->at - at);
        if (size == 0) {
            return 0;
        }
        at += size;
    }
    /* Together they are; so each is, if none begins within a character. */
    for (int64_t number = 0; number < count; number++) {
        int32_t begin;
        memcpy(&begin, texts->offsets + 4 * number, 4);
        if (begin < texts->at && (texts->data[begin] & 0xC0) == 0x80) {
            return 0;
        }
    }
    return 1;
}

/* ----------------------------------------------------------------------------------------------------------- hosts */

static uint8_t *
put_decimal(uint8_t *at, uint32_t value)
{
    uint8_t digits[10];
    int count = 0;
    do {
        digits[count++] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0) {
        *at++ = digits[--count];
    }
    return at;
}

static uint8_t
format_host(uint8_t *text, uint64_t host)
{
    uint8_t *at = text;
    for (int shift = 56; shift >= 32; shift -= 8) {
        at = put_decimal(at, host >> shift & 0xFF);
        *at++ = shift > 32 ? '.' : ':';
    }
    uint32_t port = (uint32_t)host;
    if (port > INT32_MAX) {
        *at++ = '-';
        port = 0 - port;
    }
    return (uint8_t)(put_decimal(at, port) - text);
}

int
add_host(Texts *texts, int64_t row, HostTexts *hosts, uint64_t host)
{
    size_t place = (host ^ host >> 32) * UINT64_C(0x9E3779B97F4A7C15) >> 56;
    if (hosts->kept[place].size == 0 || hosts->kept[place].host != host) {
        hosts->kept[place].size = format_host(hosts->kept[place].text, host);
        hosts->kept[place].host = host;
    }
    const uint8_t *text = hosts->kept[place].text;
    return add_text(texts, row, text, hosts->kept[place].size, text + SHORT);
}

/* ------------------------------------------------------------------------------------------------------ properties */

static inline int
is_equal(const uint8_t *one, const uint8_t *other, int64_t size)
{
    for (; size >= 8; size -= 8, one += 8, other += 8) {
        uint64_t a, b;
        memcpy(&a, one, 8);
        memcpy(&b, other, 8);
        if (a != b) {
            return 0;
        }
    }
    for (; size > 0; size--, one++, other++) {
        if (*one != *other) {
            return 0;
        }
    }
    return 1;
}

/* The first of [at, end) that is PROPERTY_END, or if `is_name` NAME_END; `end` if there is none. */
static inline const uint8_t *
find_end(const uint8_t *at, const uint8_t *end, int is_name)
{
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    for (; end - at >= 8; at += 8) {
        uint64_t word, found;
        memcpy(&word, at, 8);
        /* A byte that is zero after the exclusive or; of those that are found the lowest is one. */
        uint64_t other = word ^ (ones * PROPERTY_END);
        found = (other - ones) & ~other & tops;
        if (is_name) {
            other = word ^ (ones * NAME_END);
            found |= (other - ones) & ~other & tops;
        }
        if (found) {
            return at + __builtin_ctzll(found) / 8;
        }
    }
#endif
    for (; at < end; at++) {
        if (*at == PROPERTY_END || (is_name && *at == NAME_END)) {
            return at;
        }
    }
    return end;
}

/* Record a name as number `number` of this message; 0: it has that name already, or too many, or a long one. */
static int
learn_name(Properties *all, int number, const uint8_t *name, int64_t size)
{
    if (number >= PROPERTIES_MAX || size > NAME_SIZE_MAX) {
        return 0;
    }
    for (int before = 0; before < number; before++) {
        if (all->known[before].size == size && is_equal(all->known[before].name, name, size)) {
            return 0;
        }
    }
    all->known[number].size = size;
    all->known[number].wanted = -1;
    memcpy(all->known[number].name, name, (size_t)size);
    for (int wanted = 0; wanted < all->wanted_count; wanted++) {
        if (all->wanted[wanted].name_size == size && is_equal(all->wanted[wanted].name, name, size)) {
            all->known[number].wanted = wanted;
        }
    }
    /* The names after it are of an earlier message, and may be equal to this one. */
    all->known_count = number + 1;
    return 1;
}

/* Add a property: to the map, and where it is looked for; 0: there is no space. */
static inline int
add_property(Properties *all, int64_t row, int wanted, const uint8_t *name, int64_t name_size, const uint8_t *value,
             int64_t value_size, const uint8_t *end_of_all)
{
    if (wanted >= 0) {
        Wanted *found = &all->wanted[wanted];
        if (!add_text(&found->values, row, value, value_size, end_of_all)) {
            return 0;
        }
        found->validity[row / 8] |= (uint8_t)(1 << row % 8);
        found->found++;
    }
    if (all->firsts != NULL
        && (!add_text(&all->names, all->count, name, name_size, end_of_all)
            || !add_text(&all->values, all->count, value, value_size, end_of_all))) {
        return 0;
    }
    all->count++;
    return 1;
}

int
split_properties(Properties *all, int64_t row, const uint8_t *raw, int64_t size, const uint8_t *end_of_all)
{
    const uint8_t *at = raw, *end = raw + size;
    for (int number = 0; at < end;) {
        int is_known = number < all->known_count && all->known[number].size < end - at
            && at[all->known[number].size] == NAME_END && is_equal(at, all->known[number].name, all->known[number].size);
        const uint8_t *name_end = is_known ? at + all->known[number].size : find_end(at, end, 1);
        if (name_end == end || *name_end == PROPERTY_END) {
            at = name_end + 1; /* without a value it does not count */
            continue;
        }
        const uint8_t *value = name_end + 1, *value_end = find_end(value, end, 0);
        if (name_end > at && value_end > value) {
            if ((!is_known && !learn_name(all, number, at, name_end - at))
                || !add_property(all, row, all->known[number].wanted, at, name_end - at, value, value_end - value,
                                 end_of_all)) {
                return 0;
            }
            number++;
        }
        at = value_end + 1;
    }
    for (int64_t wanted = 0; wanted < all->wanted_count; wanted++) {
        Texts *values = &all->wanted[wanted].values;
        int32_t values_end = (int32_t)values->at;
        memcpy(values->offsets + 4 * (row + 1), &values_end, 4);
    }
    if (all->firsts != NULL) {
        int32_t count = (int32_t)all->count;
        memcpy(all->firsts + 4 * (row + 1), &count, 4);
    }
    return 1;
}

int
are_properties_utf8(const Properties *all, int64_t rows)
{
    for (int64_t wanted = 0; wanted < all->wanted_count; wanted++) {
        if (!are_utf8(&all->wanted[wanted].values, rows)) {
            return 0;
        }
    }
    return all->firsts == NULL || (are_utf8(&all->names, all->count) && are_utf8(&all->values, all->count));
}
