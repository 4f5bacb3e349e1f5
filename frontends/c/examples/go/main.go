// Prints a file of an image: cat IMAGE PATH. It lists the path if that is a directory.
package main

/*
#cgo LDFLAGS: -ldiorite
#include <diorite.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// File is an open file of an image: an io.ReaderAt and an io.Closer.
type File struct{ handle C.diorite_file }

// failed makes an error of a result. The message is of the thread that made the call, so callers lock it.
func failed(result int64) error {
	errno := syscall.Errno(-result)
	return fmt.Errorf("%s (%w)", C.GoString(C.diorite_error_message()), errno)
}

// call runs a call that returns a count, or an error.
func call(body func() int64) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	result := body()
	if result < 0 {
		return 0, failed(result)
	}
	return result, nil
}

// ReadAt reads through the page cache.
func (file File) ReadAt(bytes []byte, offset int64) (int, error) {
	if len(bytes) == 0 {
		return 0, nil
	}
	count, err := call(func() int64 {
		return int64(C.diorite_pread(file.handle, unsafe.Pointer(&bytes[0]), C.size_t(len(bytes)), C.uint64_t(offset)))
	})
	if err == nil && int(count) < len(bytes) {
		err = io.EOF
	}
	return int(count), err
}

// Close closes the file.
func (file File) Close() error {
	_, err := call(func() int64 { return int64(C.diorite_close(file.handle)) })
	return err
}

func list(volume C.diorite_volume, path *C.char) error {
	var dir C.diorite_dir
	if _, err := call(func() int64 { return int64(C.diorite_opendirat(volume, C.DIORITE_AT_ROOT, path, &dir)) }); err != nil {
		return err
	}
	defer C.diorite_closedir(dir)
	for {
		var entry C.struct_diorite_dirent
		more, err := call(func() int64 { return int64(C.diorite_readdir(dir, &entry)) })
		if err != nil || more == 0 {
			return err
		}
		fmt.Println(C.GoStringN(&entry.name[0], C.int(entry.name_len)))
	}
}

func run(image, name string) error {
	locator, path := C.CString(image), C.CString(name)
	defer C.free(unsafe.Pointer(locator))
	defer C.free(unsafe.Pointer(path))
	var volume C.diorite_volume
	if _, err := call(func() int64 { return int64(C.diorite_volume_open(locator, nil, &volume)) }); err != nil {
		return err
	}
	defer C.diorite_volume_close(volume)
	if err := list(volume, path); !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	var file File
	if _, err := call(func() int64 {
		return int64(C.diorite_openat(volume, C.DIORITE_AT_ROOT, path, 0, 0, &file.handle))
	}); err != nil {
		return err
	}
	defer file.Close()
	_, err := io.Copy(os.Stdout, io.NewSectionReader(file, 0, 1<<62))
	return err
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: cat IMAGE PATH")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "cat:", err)
		os.Exit(1)
	}
}
