/* One fault at one system call: what `library.py` describes.

   A seccomp filter sends the calls that change files to a handler in the same process, so that calls of every library
   are reached, those inside glibc and of Rust included. The handler counts the calls on files below a folder, and at a
   chosen one it returns an error, writes only a part, or kills the process group. Files that are opened for writing
   get descriptors from 500, so that calls on pipes, sockets and files that are only read are not slowed down. The
   handler marks its own calls in the sixth argument, which no filtered call uses. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)
#define REGISTER(context, index) ((context)->uc_mcontext.gregs[(int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8}[index]])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define REGISTER(context, index) ((context)->uc_mcontext.regs[index])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#else
#error "unknown processor"
#endif

#define MARK 0x5eedf001u
#define FIRST 500
#define DAY 86400

enum kind { NONE, NO_SPACE, BAD_DISK, INTERRUPTED, SHORT, KILL_BEFORE, KILL_AFTER, STAYS_FULL, CLOCK_ON, CLOCK_BACK };

/* The fields, in this order, are those of `State` in library.py; all processes of a trial share them. */
struct state {
  int64_t count, at, kind, hit, full, offset, log;
  char call[512], root[512];
};

static struct state *state;
static int log_file = -1;

enum filter { ALWAYS, ON_WRITER, OPENS };

struct rule {
  long number;
  const char *name;
  enum filter filter;
  int argument; /* of the descriptor or the flags */
  int path;     /* first argument of a path, or -1; its folder's descriptor is before it if `at` */
  int at;
};

static const struct rule rules[] = {
#ifdef SYS_open
    {SYS_open, "open", OPENS, 1, 0, 0},
    {SYS_creat, "open", ALWAYS, 0, 0, 0},
    {SYS_rename, "rename", ALWAYS, 0, 1, 0},
    {SYS_link, "link", ALWAYS, 0, 1, 0},
    {SYS_unlink, "unlink", ALWAYS, 0, 0, 0},
    {SYS_rmdir, "rmdir", ALWAYS, 0, 0, 0},
    {SYS_mkdir, "mkdir", ALWAYS, 0, 0, 0},
    {SYS_chmod, "chmod", ALWAYS, 0, 0, 0},
#endif
#ifdef SYS_renameat
    {SYS_renameat, "rename", ALWAYS, 0, 3, 1},
#endif
    {SYS_openat, "open", OPENS, 2, 1, 1},
    {SYS_renameat2, "rename", ALWAYS, 0, 3, 1},
    {SYS_linkat, "link", ALWAYS, 0, 3, 1},
    {SYS_unlinkat, "unlink", ALWAYS, 0, 1, 1},
    {SYS_mkdirat, "mkdir", ALWAYS, 0, 1, 1},
    {SYS_fchmodat, "chmod", ALWAYS, 0, 1, 1},
    {SYS_fsync, "fsync", ALWAYS, 0, -1, 0},
    {SYS_fdatasync, "fsync", ALWAYS, 0, -1, 0},
    {SYS_write, "write", ON_WRITER, 0, -1, 0},
    {SYS_pwrite64, "write", ON_WRITER, 0, -1, 0},
    {SYS_writev, "write", ON_WRITER, 0, -1, 0},
    {SYS_pwritev, "write", ON_WRITER, 0, -1, 0},
    {SYS_sendfile, "write", ON_WRITER, 0, -1, 0},
    {SYS_copy_file_range, "copy", ON_WRITER, 2, -1, 0},
    {SYS_ftruncate, "truncate", ON_WRITER, 0, -1, 0},
    {SYS_fallocate, "allocate", ON_WRITER, 0, -1, 0},
    {SYS_close, "close", ON_WRITER, 0, -1, 0},
    {SYS_dup, "dup", ON_WRITER, 0, -1, 0},
    {SYS_fcntl, "fcntl", ON_WRITER, 0, -1, 0},
};
#define RULES (sizeof rules / sizeof *rules)

static long call(long number, const long *a) {
  long result = syscall(number, a[0], a[1], a[2], a[3], a[4], MARK);
  return result < 0 ? -errno : result;
}

static long call3(long number, long one, long two, long three) {
  return call(number, (const long[]){one, two, three, 0, 0});
}

static int is_below(const char *path) {
  size_t size = strlen(state->root);
  return !strncmp(path, state->root, size) && (path[size] == '/' || !path[size]);
}

/* The path of a descriptor. */
static int described(long descriptor, char *path, size_t size) {
  char link[40];
  snprintf(link, sizeof link, "/proc/self/fd/%ld", descriptor);
  ssize_t length = readlink(link, path, size - 1);
  path[length < 0 ? 0 : length] = 0;
  return length > 0;
}

/* The absolute path that a call names; paths are relative to the folder of the trial, which no process leaves. */
static void named(const struct rule *rule, const long *a, char *path, size_t size) {
  if (rule->path < 0) {
    described(a[rule->argument], path, size);
    return;
  }
  const char *given = (const char *)a[rule->path];
  long folder = rule->at ? a[rule->path - 1] : AT_FDCWD;
  if (given[0] == '/') {
    snprintf(path, size, "%s", given);
  } else if ((int)folder == AT_FDCWD) {
    if (!getcwd(path, size)) path[0] = 0;
    size_t length = strlen(path);
    snprintf(path + length, size - length, "/%s", given);
  } else {
    described(folder, path, size);
    size_t length = strlen(path);
    snprintf(path + length, size - length, "/%s", given);
  }
}

static void end_group(void) {
  call3(SYS_kill, 0, SIGKILL, 0);
  for (;;) pause();
}

/* Half of a write, at least one byte. */
static long half(long number, const long *a) {
  long b[5] = {a[0], a[1], a[2], a[3], a[4]};
  if (number == SYS_writev || number == SYS_pwritev) {
    const struct iovec *parts = (const struct iovec *)a[1];
    struct iovec part = {parts->iov_base, parts->iov_len > 1 ? parts->iov_len / 2 : parts->iov_len};
    b[1] = (long)&part;
    b[2] = 1;
    return call(number, b);
  }
  int size = number == SYS_sendfile ? 3 : 2;
  b[size] = a[size] > 1 ? a[size] / 2 : a[size];
  return call(number, b);
}

static int needs_room(const char *name) {
  return !strcmp(name, "write") || !strcmp(name, "open") || !strcmp(name, "mkdir") || !strcmp(name, "link") ||
         !strcmp(name, "allocate");
}

static int makes(const struct rule *rule, const long *a) {
  return strcmp(rule->name, "open") || rule->filter == ALWAYS || (a[rule->argument] & O_CREAT);
}

/* A file that is opened for writing gets a descriptor from FIRST. */
static long moved(long descriptor, int on_exec) {
  if (descriptor < 0) return descriptor;
  long result = call3(SYS_fcntl, descriptor, on_exec ? F_DUPFD_CLOEXEC : F_DUPFD, FIRST);
  call3(SYS_close, descriptor, 0, 0);
  return result;
}

static long done(const struct rule *rule, const long *a) {
  long result = call(rule->number, a);
  if (!strcmp(rule->name, "open")) return moved(result, rule->filter == OPENS && (a[rule->argument] & O_CLOEXEC));
  return result;
}

static long failed(const struct rule *rule, const long *a, int error) {
  if (!strcmp(rule->name, "close")) done(rule, a); /* Linux frees the descriptor all the same */
  return -error;
}

static long at_fault(const struct rule *rule, const long *a) {
  switch (state->kind) {
  case NO_SPACE:
    return failed(rule, a, ENOSPC);
  case BAD_DISK:
    return failed(rule, a, EIO);
  case INTERRUPTED:
    return failed(rule, a, EINTR);
  case SHORT:
    return strcmp(rule->name, "write") ? done(rule, a) : half(rule->number, a);
  case KILL_BEFORE:
    end_group();
    return 0;
  case KILL_AFTER:
    done(rule, a);
    end_group();
    return 0;
  case STAYS_FULL:
    state->full = 1;
    if (!strcmp(rule->name, "write")) return half(rule->number, a);
    return needs_room(rule->name) && makes(rule, a) ? -ENOSPC : done(rule, a);
  case CLOCK_ON:
  case CLOCK_BACK:
    state->offset = state->kind == CLOCK_ON ? DAY : -DAY;
    return done(rule, a);
  default:
    return done(rule, a);
  }
}

static long answer(const struct rule *rule, const long *a) {
  if (rule->number == SYS_dup) return call3(SYS_fcntl, a[0], F_DUPFD, FIRST);
  if (rule->number == SYS_fcntl) {
    int copies = a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC;
    return call3(SYS_fcntl, a[0], a[1], copies && a[2] < FIRST ? FIRST : a[2]);
  }
  if (rule->number == SYS_copy_file_range) return -ENOSYS; /* it uses six arguments; callers write instead */
  char path[4096];
  named(rule, a, path, sizeof path);
  if (!is_below(path)) return call(rule->number, a);
  int64_t number = __atomic_add_fetch(&state->count, 1, __ATOMIC_SEQ_CST);
  const char *name = path + strlen(state->root) + (path[strlen(state->root)] == '/');
  if (state->log) {
    char line[8400], from[4096] = "";
    if (!strcmp(rule->name, "rename") || !strcmp(rule->name, "link")) {
      struct rule other = *rule;
      other.path = rule->at;
      named(&other, a, from, sizeof from);
    }
    const char *old = is_below(from) ? from + strlen(state->root) + 1 : "";
    int size = snprintf(line, sizeof line, "%s %s%s%s\n", rule->name, name, *old ? "\t" : "", old);
    call3(SYS_write, log_file, (long)line, size);
  }
  if (number == state->at) {
    state->hit = 1;
    snprintf(state->call, sizeof state->call, "%s %s", rule->name, name);
    return at_fault(rule, a);
  }
  if (state->full && needs_room(rule->name) && makes(rule, a)) return -ENOSPC;
  return done(rule, a);
}

static void handler(int signal, siginfo_t *info, void *context) {
  (void)signal;
  int before = errno;
  ucontext_t *at = context;
  long a[5];
  for (int i = 0; i < 5; i++) a[i] = (long)REGISTER(at, i);
  for (size_t i = 0; i < RULES; i++)
    if (rules[i].number == info->si_syscall) {
      RESULT(at) = answer(&rules[i], a);
      break;
    }
  errno = before;
}

static int attached(const char *path) {
  long file = call(SYS_openat, (long[]){AT_FDCWD, (long)path, O_RDWR | O_CLOEXEC, 0, 0}); /* a filter may be active */
  if (file < 0) return -1;
  state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (state == MAP_FAILED) return -1;
  char name[4096];
  snprintf(name, sizeof name, "%s.log", path);
  long plain = call(SYS_openat, (long[]){AT_FDCWD, (long)name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644, 0});
  log_file = fcntl(plain, F_DUPFD_CLOEXEC, 400);
  close(plain);
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
  return sigaction(SIGSYS, &action, NULL);
}

/* Attach to the file of the state, and send the calls of this process and of those it starts to the handler. */
int faults_arm(const char *path) {
  struct sock_filter filter[RULES * 6 + 8];
  int size = 0;
#define ADD(...) filter[size++] = (struct sock_filter)__VA_ARGS__
#define LOAD(field) ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, field))
  LOAD(offsetof(struct seccomp_data, args[5]));
  ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MARK, 0, 1));
  ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  LOAD(offsetof(struct seccomp_data, nr));
  for (size_t i = 0; i < RULES; i++) {
    const struct rule *rule = &rules[i];
    unsigned value = rule->filter == OPENS ? O_WRONLY | O_RDWR : FIRST;
    unsigned test = rule->filter == OPENS ? BPF_JSET : BPF_JGE;
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)rule->number, 0, 4));
    LOAD(offsetof(struct seccomp_data, args) + 8 * rule->argument);
    ADD(BPF_JUMP(BPF_JMP | test | BPF_K, rule->filter == ALWAYS ? 0 : value, 0, 1));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    ADD(BPF_STMT(BPF_RET | BPF_K, rule->filter == ALWAYS ? SECCOMP_RET_TRAP : SECCOMP_RET_ALLOW));
  }
  ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  struct sock_fprog program = {size, filter};
  if (attached(path) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* A program that an armed process starts has its filter, but no handler yet. */
__attribute__((constructor)) static void start(void) {
  const char *path = getenv("FAULTS_STATE");
  if (path && *path) attached(path);
}

/* The clock of the day; the monotonic one cannot be set on a real machine either. */
int clock_gettime(clockid_t clock, struct timespec *time) {
  long result = syscall(SYS_clock_gettime, clock, time);
  if (!result && state && clock == CLOCK_REALTIME) time->tv_sec += state->offset;
  return (int)result;
}
