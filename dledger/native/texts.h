/* Texts of a column, one after another, and what becomes one: hosts, properties. Used by columns.c alone. */

#ifndef DLEDGER_TEXTS_H
#define DLEDGER_TEXTS_H

#include "kernels.h"

/* Bytes that are copied at once: most topics and properties have fewer. */
#define SHORT 32
/* Names that are looked for; properties of one message that are kept, and bytes of each name. */
#define WANTED_NAMES_MAX 4
#define PROPERTIES_MAX 64
#define NAME_SIZE_MAX 64
/* Hosts whose text is kept. A text has at most 27 bytes: four numbers, a port of ten digits and its sign, separators. */
#define HOSTS_KEPT 256

/* A column of texts: their ends, and their bytes; `offsets` NULL: it is not wanted. */
typedef struct {
    uint8_t *offsets, *data;
    int64_t count_max, capacity; /* offsets after the first; bytes of `data` */
    int64_t at;              /* bytes that are used */
} Texts;

/* Add a text as number `row`, whose buffer ends at `end_of_all`; 0: there is no space. */
static inline int
add_text(Texts *texts, int64_t row, const uint8_t *text, int64_t size, const uint8_t *end_of_all)
{
    int64_t capacity = texts->capacity - texts->at;
    if (row >= texts->count_max || size > capacity) {
        return 0;
    }
    if (size <= SHORT && capacity >= SHORT && end_of_all - text >= SHORT) {
        memcpy(texts->data + texts->at, text, SHORT);
    }
    else {
        memcpy(texts->data + texts->at, text, (size_t)size);
    }
    texts->at += size;
    int32_t end = (int32_t)texts->at;
    memcpy(texts->offsets + 4 * (row + 1), &end, 4);
    return 1;
}

/* Whether each of `count` texts is UTF-8 as Python and Arrow define it: no surrogates, no overlong forms, at most
 * U+10FFFF. */
int are_utf8(const Texts *texts, int64_t count);

/* Texts of the hosts that were seen last. */
typedef struct {
    struct {
        uint64_t host;
        uint8_t size; /* 0: unused */
        uint8_t text[SHORT];
    } kept[HOSTS_KEPT];
} HostTexts;

/* Add an IPv4 host, four bytes of address and four of the port, as text; 0: there is no space. */
int add_host(Texts *texts, int64_t row, HostTexts *hosts, uint64_t host);

/* A property that is looked for. */
typedef struct {
    const uint8_t *name;
    int64_t name_size;
    uint8_t *validity; /* bits */
    Texts values;
    int64_t found; /* messages that have it */
} Wanted;

/* The properties of messages. */
typedef struct {
    Wanted wanted[WANTED_NAMES_MAX];
    int64_t wanted_count;
    uint8_t *firsts; /* number of each message's first property; NULL: only what is looked for */
    Texts names, values;
    int64_t count;
    /* The names of the message before, or of this one: most messages of a log have the same. */
    struct {
        int64_t size;
        int wanted; /* its number; -1: it is not searched for */
        uint8_t name[NAME_SIZE_MAX];
    } known[PROPERTIES_MAX];
    int known_count;
} Properties;

static inline int
has_outputs(const Properties *all)
{
    return all->wanted_count > 0 || all->firsts != NULL;
}

/* Split the properties of one message, whose buffer ends at `end_of_all`; 0: they do not have the usual form. */
int split_properties(Properties *all, int64_t row, const uint8_t *raw, int64_t size, const uint8_t *end_of_all);

/* Whether all texts are UTF-8. */
int are_properties_utf8(const Properties *all, int64_t rows);

#endif
