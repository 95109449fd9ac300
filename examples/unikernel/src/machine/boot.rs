//! From the loader to Rust: 32-bit code without paging becomes 64-bit code on a stack.
//!
//! How: the ELF note tells the loader (QEMU's `-kernel`, or any other that knows PVH) where to
//! enter. It enters in 32-bit protected mode with flat segments, paging off, interrupts off, and
//! the address of its information in `ebx`. Four page directories map the first 4 GiB one to one in
//! pages of 2 MiB; the last GiB, where devices are, is not cached. Then long mode, a stack, and
//! `kernel_start`.
//!
//! Limits: one processor. Interrupts stay off but for one place, which is why compiled code may use
//! the red zone below the stack. A fault resets the machine.

use core::arch::global_asm;

/// Bytes of the stack.
const STACK_LEN: usize = 256 << 10;

global_asm!(
    "
    .section .note.pvh, \"a\", @note
    .balign 4
    .long 4, 8, 18              // lengths of name and content; XEN_ELFNOTE_PHYS32_ENTRY
    .asciz \"Xen\"
    .quad start32

    .section .bss.boot, \"aw\", @nobits
    .balign 4096
    page_map: .skip 4096        // one entry
    page_pointers: .skip 4096   // four entries
    page_directories: .skip 4 * 4096
    stack: .skip {stack_len}
    stack_end:

    .section .rodata.boot, \"a\"
    .balign 8
    segments:
    .quad 0
    .quad 0x00af9b000000ffff    // 64-bit code
    .quad 0x00cf93000000ffff    // data
    segments_pointer:
    .word . - segments - 1
    .quad segments

    .section .boot, \"ax\"
    .code32
    .global start32
    start32:
    cli
    cld
    mov %ebx, %esi              // kept for kernel_start
    mov $page_directories, %edi
    mov $0x83, %eax             // present, writable, large
    mov $2048, %ecx
    2:
    cmp $0xc0000000, %eax
    jb 3f
    or $0x18, %eax              // uncached
    3:
    mov %eax, (%edi)
    add $8, %edi
    add $0x200000, %eax
    loop 2b
    mov $page_pointers, %edi
    mov $page_directories + 3, %eax
    mov $4, %ecx
    4:
    mov %eax, (%edi)
    add $8, %edi
    add $4096, %eax
    loop 4b
    movl $page_pointers + 3, page_map
    mov $page_map, %eax
    mov %eax, %cr3
    mov %cr4, %eax
    or $0x620, %eax             // PAE, SSE and its exceptions
    mov %eax, %cr4
    mov $0xc0000080, %ecx       // EFER
    rdmsr
    or $0x100, %eax             // LME
    wrmsr
    mov %cr0, %eax
    and $0xfffffffb, %eax       // no x87 emulation
    or $0x80000002, %eax        // paging, and coprocessor monitoring for SSE
    mov %eax, %cr0
    lgdt segments_pointer
    ljmp $8, $start64

    .code64
    start64:
    mov $16, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov $stack_end, %rsp
    xor %ebp, %ebp
    mov %esi, %edi
    call kernel_start
    ud2
    .text
    ",
    stack_len = const STACK_LEN,
    options(att_syntax)
);
