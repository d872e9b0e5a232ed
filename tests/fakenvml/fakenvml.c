/*
 * A libnvidia-ml.so.1 for machines without a GPU: it answers the calls of our plugin, of pynvml and of nvidia-ctk from a text
 * beside it, `fakenvml.txt`, which render.py writes and which is read again whenever it changed.
 *
 * A line is a key and its values. What comes before the first `gpu` is of the driver, what comes after a `gpu` is of that GPU.
 * Where a value is missing, the call is not supported, as many are not by real cards. `error FUNCTION CODE` makes a function
 * fail, for one GPU or, before the first, for all; `error * CODE` makes every function fail that asks about the GPU.
 * Names, numbers and structures are those of nvml.h of CUDA 13. Compiled with OLD_DRIVER, it lacks what drivers lacked once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    VERSION_MISMATCH = 25,
};
enum { GPUS = 64, ERRORS = 32, XIDS = 1024, TEXT = 96 };
enum { RECOVERY_ACTION = 230, EVENT_XID = 8 };

struct error { char function[TEXT]; int code; };

struct gpu {
    char uuid[TEXT], pci[TEXT], name[TEXT];
    int has_name, minor, brand, architecture, major, minor_capability, has_memory, mig, mig_pending, numa;
    int ecc, remapped[4], retired, sram, recovery;
    unsigned long long memory, events;
    struct error errors[ERRORS];
    int error_count;
};

static struct {
    char driver[TEXT];
    int cuda, init;
    struct gpu gpus[GPUS];
    unsigned count;
    struct error errors[ERRORS];
    int error_count;
    struct { unsigned gpu; unsigned long long xid; } xids[XIDS];
    int xid_count;
} machine;

/* An event set knows which GPUs it is for, and the first Xid that is news to it. */
struct event_set { unsigned char registered[GPUS]; int next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stat last;
static int opened;

static void forget(struct gpu *gpu)
{
    memset(gpu, 0, sizeof *gpu);
    gpu->minor = gpu->brand = gpu->architecture = gpu->major = gpu->mig = gpu->numa = -1;
    gpu->ecc = gpu->remapped[0] = gpu->retired = gpu->sram = gpu->recovery = -1;
}

static void read_line(char *line, struct gpu *gpu)
{
    char key[TEXT], rest[256] = "", function[TEXT];
    int code;
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "%95s %255[^\n]", key, rest) < 1)
        return;
    if (!strcmp(key, "error") && sscanf(rest, "%95s %d", function, &code) == 2) {
        struct error *errors = gpu ? gpu->errors : machine.errors;
        int *count = gpu ? &gpu->error_count : &machine.error_count;
        if (*count < ERRORS) {
            snprintf(errors[*count].function, TEXT, "%s", function);
            errors[(*count)++].code = code;
        }
    } else if (!strcmp(key, "xid")) {
        if (machine.xid_count < XIDS
            && sscanf(rest, "%u %llu", &machine.xids[machine.xid_count].gpu, &machine.xids[machine.xid_count].xid) == 2)
            machine.xid_count++;
    } else if (!gpu) {
        if (!strcmp(key, "driver")) snprintf(machine.driver, TEXT, "%.90s", rest);
        if (!strcmp(key, "cuda")) machine.cuda = atoi(rest);
        if (!strcmp(key, "init")) machine.init = atoi(rest);
    } else {
        if (!strcmp(key, "uuid")) snprintf(gpu->uuid, TEXT, "%.90s", rest);
        if (!strcmp(key, "pci")) snprintf(gpu->pci, TEXT, "%.31s", rest);
        if (!strcmp(key, "name")) gpu->has_name = snprintf(gpu->name, TEXT, "%.90s", rest) >= 0;
        if (!strcmp(key, "minor")) gpu->minor = atoi(rest);
        if (!strcmp(key, "brand")) gpu->brand = atoi(rest);
        if (!strcmp(key, "architecture")) gpu->architecture = atoi(rest);
        if (!strcmp(key, "capability")) sscanf(rest, "%d %d", &gpu->major, &gpu->minor_capability);
        if (!strcmp(key, "memory")) gpu->has_memory = sscanf(rest, "%llu", &gpu->memory);
        if (!strcmp(key, "mig")) sscanf(rest, "%d %d", &gpu->mig, &gpu->mig_pending);
        if (!strcmp(key, "numa")) gpu->numa = atoi(rest);
        if (!strcmp(key, "ecc")) gpu->ecc = atoi(rest);
        if (!strcmp(key, "remapped"))
            sscanf(rest, "%d %d %d %d", &gpu->remapped[0], &gpu->remapped[1], &gpu->remapped[2], &gpu->remapped[3]);
        if (!strcmp(key, "retired")) gpu->retired = atoi(rest);
        if (!strcmp(key, "sram")) gpu->sram = atoi(rest);
        if (!strcmp(key, "recovery")) gpu->recovery = atoi(rest);
        if (!strcmp(key, "events")) sscanf(rest, "%llu", &gpu->events);
    }
}

/* The text is beside the library's own file, wherever links lead to it from. */
static void refresh(void)
{
    char path[4096], real[4096], line[512];
    struct gpu *gpu = NULL;
    struct stat now;
    Dl_info info;
    if (!dladdr((void *)&machine, &info) || !info.dli_fname || !realpath(info.dli_fname, real))
        return;
    char *slash = strrchr(real, '/');
    if (snprintf(path, sizeof path, "%.*s/fakenvml.txt", (int)(slash - real), real) >= (int)sizeof path || stat(path, &now))
        return;
    if (now.st_ino == last.st_ino && now.st_size == last.st_size && now.st_mtim.tv_sec == last.st_mtim.tv_sec
        && now.st_mtim.tv_nsec == last.st_mtim.tv_nsec)
        return;
    FILE *text = fopen(path, "r");
    if (!text)
        return;
    last = now;
    memset(&machine, 0, sizeof machine);
    while (fgets(line, sizeof line, text)) {
        if (!strncmp(line, "gpu", 3) && (line[3] == '\n' || !line[3])) {
            gpu = machine.count < GPUS ? &machine.gpus[machine.count++] : gpu;
            forget(gpu);
        } else {
            read_line(line, gpu);
        }
    }
    fclose(text);
}

static int error_of(const struct error *errors, int count, const char *function)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(errors[i].function, function) || !strcmp(errors[i].function, "*"))
            return errors[i].code;
    return SUCCESS;
}

static int begin(const char *function)
{
    pthread_mutex_lock(&lock);
    refresh();
    return opened ? error_of(machine.errors, machine.error_count, function) : UNINITIALIZED;
}

static int end(int code)
{
    pthread_mutex_unlock(&lock);
    return code;
}

static int begin_gpu(const char *function, struct gpu *gpu)
{
    int code = begin(function);
    if (code)
        return code;
    if (gpu < machine.gpus || gpu >= machine.gpus + machine.count)
        return INVALID_ARGUMENT;
    return error_of(gpu->errors, gpu->error_count, function);
}

static int text_into(const char *text, char *buffer, unsigned length)
{
    if (strlen(text) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}

/* A function of the whole machine, and one of a GPU: the body sets `code`. */
#define SYSTEM(name, parameters, ...) \
    API int name parameters           \
    {                                 \
        int code = begin(#name);      \
        if (!code) __VA_ARGS__;       \
        return end(code);             \
    }
#define DEVICE(name, parameters, ...)     \
    API int name parameters               \
    {                                     \
        int code = begin_gpu(#name, gpu); \
        if (!code) __VA_ARGS__;           \
        return end(code);                 \
    }
#define NUMBER(value, out)                      \
    {                                           \
        if ((value) < 0) code = NOT_SUPPORTED;  \
        else *(out) = (value);                  \
    }

static int open_library(void)
{
    pthread_mutex_lock(&lock);
    refresh();
    if (!machine.init)
        opened++;
    return end(machine.init);
}

API int nvmlInit(void) { return open_library(); }
API int nvmlInit_v2(void) { return open_library(); }
API int nvmlInitWithFlags(unsigned flags) { (void)flags; return open_library(); }
SYSTEM(nvmlShutdown, (void), { opened--; })

API const char *nvmlErrorString(int code)
{
    static char text[TEXT];
    snprintf(text, TEXT, "fake NVML error %d", code);
    return code ? text : "The operation was successful";
}

SYSTEM(nvmlSystemGetDriverVersion, (char *version, unsigned length), { code = text_into(machine.driver, version, length); })
SYSTEM(nvmlSystemGetNVMLVersion, (char *version, unsigned length), { code = text_into("13.580", version, length); })
SYSTEM(nvmlSystemGetCudaDriverVersion, (int *version), { *version = machine.cuda; })
SYSTEM(nvmlDeviceGetCount_v2, (unsigned *count), { *count = machine.count; })

static int handle_of(unsigned index, const char *function, struct gpu **gpu)
{
    int code = error_of(machine.gpus[index].errors, machine.gpus[index].error_count, function);
    *gpu = &machine.gpus[index];
    return code;
}

SYSTEM(nvmlDeviceGetHandleByIndex_v2, (unsigned index, struct gpu **gpu), {
    code = index < machine.count ? handle_of(index, "nvmlDeviceGetHandleByIndex_v2", gpu) : INVALID_ARGUMENT;
})
SYSTEM(nvmlDeviceGetHandleByUUID, (const char *uuid, struct gpu **gpu), {
    code = NOT_FOUND;
    for (unsigned i = 0; i < machine.count; i++)
        if (!strcmp(machine.gpus[i].uuid, uuid))
            code = handle_of(i, "nvmlDeviceGetHandleByUUID", gpu);
})
/* Both 0000:53:00.0 and 00000000:53:00.0 are taken, as by the real one. */
SYSTEM(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus_id, struct gpu **gpu), {
    unsigned a[4] = {0}, b[4] = {0};
    code = sscanf(bus_id, "%x:%x:%x.%x", &a[0], &a[1], &a[2], &a[3]) == 4 ? NOT_FOUND : INVALID_ARGUMENT;
    for (unsigned i = 0; code == NOT_FOUND && i < machine.count; i++) {
        sscanf(machine.gpus[i].pci, "%x:%x:%x.%x", &b[0], &b[1], &b[2], &b[3]);
        if (!memcmp(a, b, sizeof a)) {
            code = handle_of(i, "nvmlDeviceGetHandleByPciBusId_v2", gpu);
            break;
        }
    }
})

DEVICE(nvmlDeviceGetIndex, (struct gpu *gpu, unsigned *index), { *index = (unsigned)(gpu - machine.gpus); })
DEVICE(nvmlDeviceGetUUID, (struct gpu *gpu, char *uuid, unsigned length), { code = text_into(gpu->uuid, uuid, length); })
DEVICE(nvmlDeviceGetName, (struct gpu *gpu, char *name, unsigned length), {
    code = gpu->has_name ? text_into(gpu->name, name, length) : NOT_SUPPORTED;
})
DEVICE(nvmlDeviceGetMinorNumber, (struct gpu *gpu, unsigned *minor), NUMBER(gpu->minor, minor))
DEVICE(nvmlDeviceGetBrand, (struct gpu *gpu, int *brand), NUMBER(gpu->brand, brand))
DEVICE(nvmlDeviceGetNumaNodeId, (struct gpu *gpu, unsigned *node), NUMBER(gpu->numa, node))
DEVICE(nvmlDeviceGetCudaComputeCapability, (struct gpu *gpu, int *major, int *minor), {
    NUMBER(gpu->major, major);
    *minor = gpu->minor_capability;
})

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

static void fill_pci(const struct gpu *gpu, struct pci *pci)
{
    unsigned function;
    memset(pci, 0, sizeof *pci);
    sscanf(gpu->pci, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%.31s", gpu->pci);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    pci->id = 0x233010deu;
}

DEVICE(nvmlDeviceGetPciInfo_v3, (struct gpu *gpu, struct pci *pci), { fill_pci(gpu, pci); })

struct memory { unsigned long long total, free, used; };

DEVICE(nvmlDeviceGetMemoryInfo, (struct gpu *gpu, struct memory *memory), {
    if (gpu->has_memory) *memory = (struct memory){gpu->memory, gpu->memory, 0};
    else code = NOT_SUPPORTED;
})

DEVICE(nvmlDeviceGetMigMode, (struct gpu *gpu, unsigned *current, unsigned *pending), {
    NUMBER(gpu->mig, current);
    *pending = gpu->mig_pending;
})
DEVICE(nvmlDeviceGetMaxMigDeviceCount, (struct gpu *gpu, unsigned *count), { *count = gpu->mig < 0 ? 0 : 7; })
DEVICE(nvmlDeviceGetMigDeviceHandleByIndex, (struct gpu *gpu, unsigned index, struct gpu **mig), {
    (void)index;
    *mig = NULL;
    code = NOT_FOUND;
})
DEVICE(nvmlDeviceIsMigDeviceHandle, (struct gpu *gpu, unsigned *is), { *is = 0; })

/* Health. */

DEVICE(nvmlDeviceGetTotalEccErrors, (struct gpu *gpu, int type, int counter, unsigned long long *count), {
    (void)counter;
    if (gpu->ecc < 0) code = NOT_SUPPORTED;
    else *count = type == 1 ? (unsigned long long)gpu->ecc : 0;
})
DEVICE(nvmlDeviceGetRemappedRows,
       (struct gpu *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed), {
    NUMBER(gpu->remapped[0], corrected);
    *uncorrected = gpu->remapped[1];
    *pending = gpu->remapped[2];
    *failed = gpu->remapped[3];
})
DEVICE(nvmlDeviceGetRetiredPagesPendingStatus, (struct gpu *gpu, int *pending), NUMBER(gpu->retired, pending))
DEVICE(nvmlDeviceGetSupportedEventTypes, (struct gpu *gpu, unsigned long long *types), { *types = gpu->events; })

struct event { struct gpu *gpu; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

SYSTEM(nvmlEventSetCreate, (struct event_set **set), {
    *set = calloc(1, sizeof **set);
    (*set)->next = machine.xid_count;
})
SYSTEM(nvmlEventSetFree, (struct event_set *set), { free(set); })
DEVICE(nvmlDeviceRegisterEvents, (struct gpu *gpu, unsigned long long types, struct event_set *set), {
    if (types & ~gpu->events) code = NOT_SUPPORTED;
    else set->registered[gpu - machine.gpus] = 1;
})

static int next_event(struct event_set *set, struct event *event)
{
    int code = begin("nvmlEventSetWait_v2");
    while (!code && set->next < machine.xid_count) {
        unsigned gpu = machine.xids[set->next].gpu;
        unsigned long long xid = machine.xids[set->next++].xid;
        if (gpu < machine.count && set->registered[gpu]) {
            *event = (struct event){&machine.gpus[gpu], EVENT_XID, xid, 0xffffffffu, 0xffffffffu};
            return end(SUCCESS);
        }
    }
    return end(code ? code : TIMEOUT);
}

API int nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned milliseconds)
{
    int code;
    while ((code = next_event(set, event)) == TIMEOUT && milliseconds) {
        unsigned nap = milliseconds < 5 ? milliseconds : 5;
        nanosleep(&(struct timespec){0, nap * 1000000L}, NULL);
        milliseconds -= nap;
    }
    return code;
}

#ifndef OLD_DRIVER

SYSTEM(nvmlSystemGetCudaDriverVersion_v2, (int *version), { *version = machine.cuda; })
DEVICE(nvmlDeviceGetArchitecture, (struct gpu *gpu, unsigned *architecture), NUMBER(gpu->architecture, architecture))

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

DEVICE(nvmlDeviceGetMemoryInfo_v2, (struct gpu *gpu, struct memory_v2 *memory), {
    if (memory->version != (sizeof *memory | 2u << 24)) code = VERSION_MISMATCH;
    else if (gpu->has_memory) *memory = (struct memory_v2){memory->version, gpu->memory, 0, gpu->memory, 0};
    else code = NOT_SUPPORTED;
})

struct field { unsigned id, scope; long long timestamp, latency; int type, code; union { unsigned number; long long wide; } value; };

DEVICE(nvmlDeviceGetFieldValues, (struct gpu *gpu, int count, struct field *fields), {
    for (int i = 0; i < count; i++) {
        int known = fields[i].id == RECOVERY_ACTION && gpu->recovery >= 0;
        fields[i].code = known ? SUCCESS : NOT_SUPPORTED;
        fields[i].type = 1; /* unsigned int */
        fields[i].value.wide = 0;
        fields[i].value.number = known ? (unsigned)gpu->recovery : 0;
    }
})

struct sram { unsigned version; unsigned long long counts[11]; unsigned exceeded; };

DEVICE(nvmlDeviceGetSramEccErrorStatus, (struct gpu *gpu, struct sram *status), {
    if (status->version != (sizeof *status | 1u << 24)) code = VERSION_MISMATCH;
    else if (gpu->sram < 0) code = NOT_SUPPORTED;
    else status->exceeded = gpu->sram;
})

#endif
