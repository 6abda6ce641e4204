/* What would be on the disk if the power went now.
 *
 * Preloaded under the service. A kill cannot lose the page cache; this can: only what
 * fsync/fdatasync was called for is copied to a shadow folder, from which the test builds
 * the data folder "after the crash".
 *
 *   STABLE_LIVE    the data folder
 *   STABLE_SHADOW  shadow folder with the empty folders files/ and dirs/
 *   STABLE_IGNORE  optional: a sync of a path with this suffix does nothing, as if the call
 *                  were not in the program
 *
 *   STABLE_FAIL    optional: a sync of a path with this suffix fails with EIO
 *   STABLE_GATED   optional: a sync of a path with this suffix waits until the file named by
 *   STABLE_GATE    is there
 *   STABLE_KILL    optional: the process is killed at a sync of a path with this suffix, before
 *                  the sync has an effect, once so many of them as
 *   STABLE_SPARED  says have returned
 *
 * They are read at the first sync, since the process may be the copy of one that began before them.
 *
 * A file's content is kept under its identity (device inode number and birth time), and a
 * folder's entries name identities: a rename or creation counts once its folder is synced.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *live, *shadow, *ignored;

static int identity(int dirfd, const char *name, int flags, char *out, mode_t *mode) {
  struct statx st;
  if (statx(dirfd, name, flags | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st)) return -1;
  snprintf(out, 64, "%llu-%lld-%u", (unsigned long long)st.stx_ino, (long long)st.stx_btime.tv_sec,
           st.stx_btime.tv_nsec);
  *mode = st.stx_mode;
  return 0;
}

static void die(const char *what) {
  perror(what);
  _exit(97);
}

static void copy_file(int fd, const char *path) {
  static char buffer[1 << 20];
  char fresh[PATH_MAX + 8];
  snprintf(fresh, sizeof fresh, "%s.new", path);
  int out = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (out < 0) die(fresh);
  off_t at = 0;
  for (ssize_t got; (got = pread(fd, buffer, sizeof buffer, at)) != 0; at += got)
    if (got < 0 || pwrite(out, buffer, got, at) != got) die("copy");
  close(out);
  if (rename(fresh, path)) die("rename");
}

static void copy_entries(int fd, const char *path) {
  char fresh[PATH_MAX + 8], id[64];
  snprintf(fresh, sizeof fresh, "%s.new", path);
  FILE *out = fopen(fresh, "we");
  int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = own < 0 ? NULL : fdopendir(own);
  if (!out || !dir) die(fresh);
  for (struct dirent *entry; (entry = readdir(dir));) {
    mode_t mode;
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (identity(fd, entry->d_name, 0, id, &mode)) continue;
    fprintf(out, "%c %s %s\n", S_ISDIR(mode) ? 'd' : 'f', id, entry->d_name);
  }
  closedir(dir);
  if (fclose(out)) die("fclose");
  if (rename(fresh, path)) die("rename");
}

/* One sync at a time: copies share a buffer, and a later copy must not be overtaken. */
#include <pthread.h>
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

static int keep(int fd) {
  char link[64], path[PATH_MAX], id[64], target[PATH_MAX];
  mode_t mode;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0 || !live || strncmp(path, live, strlen(live)) || identity(fd, "", AT_EMPTY_PATH, id, &mode))
    return 0;
  path[length] = 0;
  size_t suffix = ignored ? strlen(ignored) : 0;
  if (suffix && (size_t)length >= suffix && !strcmp(path + length - suffix, ignored)) return 0;
  snprintf(target, sizeof target, "%s/%s/%s", shadow, S_ISDIR(mode) ? "dirs" : "files", id);
  pthread_mutex_lock(&one);
  if (S_ISDIR(mode)) copy_entries(fd, target);
  else copy_file(fd, target);
  pthread_mutex_unlock(&one);
  return 0;
}

static int ends_in(int fd, const char *suffix) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1), wanted = strlen(suffix);
  return length >= wanted && !memcmp(path + length - wanted, suffix, wanted);
}

static int spared;

static void kill_if_due(int fd) {
  const char *killing = getenv("STABLE_KILL"), *least = getenv("STABLE_SPARED");
  if (!killing || !ends_in(fd, killing)) return;
  if (__sync_fetch_and_add(&spared, 1) >= (least ? atoi(least) : 0)) kill(getpid(), SIGKILL);
}

static void begin(void) {
  char path[PATH_MAX], id[64];
  mode_t mode;
  live = getenv("STABLE_LIVE");
  shadow = getenv("STABLE_SHADOW");
  ignored = getenv("STABLE_IGNORE");
  if (!live || !shadow) return;
  if (identity(AT_FDCWD, live, 0, id, &mode)) die(live);
  snprintf(path, sizeof path, "%s/root", shadow);
  FILE *out = fopen(path, "we");
  if (!out || fputs(id, out) < 0 || fclose(out)) die(path);
}

static int sync_fd(int fd) {
  static pthread_once_t begun = PTHREAD_ONCE_INIT;
  pthread_once(&begun, begin);
  kill_if_due(fd);
  const char *failing = getenv("STABLE_FAIL"), *gated = getenv("STABLE_GATED"), *gate = getenv("STABLE_GATE");
  if (failing && ends_in(fd, failing)) return errno = EIO, -1;
  while (gated && gate && ends_in(fd, gated) && access(gate, F_OK)) usleep(2000);
  return keep(fd);
}

int fsync(int fd) { return sync_fd(fd); }
int fdatasync(int fd) { return sync_fd(fd); }
