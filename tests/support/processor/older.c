/* Makes a process believe that its processor is an older one, so that libraries choose other kernels.
 *
 * Linux can let the CPUID instruction fail (arch_prctl ARCH_SET_CPUID). The handler answers in its place: the values of
 * the real processor without AVX-512 and AMX (PROCESSOR=haswell), or with the name of another maker (zen2, zen4).
 * Build: cc -O2 -shared -fPIC -o older.so older.c. Use: LD_PRELOAD=older.so PROCESSOR=zen2 command.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define BIT(n) (1u << (n))

static int has_avx512, is_amd;

static int allow_cpuid(int allowed) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, (unsigned long)allowed); }

static void answer(int number, siginfo_t *information, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *instruction = (const uint8_t *)registers[REG_RIP];
    uint32_t leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;

    if (instruction[0] != 0x0f || instruction[1] != 0xa2) { /* a real segmentation fault */
        signal(SIGSEGV, SIG_DFL);
        return;
    }
    allow_cpuid(1);
    __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(part));
    allow_cpuid(0);
    if (leaf == 7 && part == 0) {
        d &= ~(BIT(22) | BIT(23) | BIT(24) | BIT(25)); /* AMX, AVX512-FP16 */
        if (!has_avx512) {
            b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
            c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
            d &= ~(BIT(2) | BIT(3) | BIT(8));
        }
    }
    if (leaf == 7 && part == 1 && !has_avx512)
        a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23)); /* AVX-VNNI, BF16, AMX-FP16, AVX-IFMA */
    if (leaf == 1)
        a = !is_amd ? 0x000306C3 : has_avx512 ? 0x00A10F11 : 0x00870F10;
    if (is_amd && (leaf == 0 || leaf == 0x80000000u)) {
        memcpy(&b, "Auth", 4);
        memcpy(&d, "enti", 4);
        memcpy(&c, "cAMD", 4);
    }
    if (is_amd && (leaf == 2 || leaf == 4))
        a = b = c = d = 0; /* descriptions of caches that this maker gives elsewhere */
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void)
{
    const char *name = getenv("PROCESSOR");
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};

    if (!name)
        return;
    is_amd = strncmp(name, "zen", 3) == 0;
    has_avx512 = strcmp(name, "zen4") == 0;
    if (sigaction(SIGSEGV, &action, NULL) || allow_cpuid(0))
        _exit(77); /* this kernel or processor cannot do it */
}
