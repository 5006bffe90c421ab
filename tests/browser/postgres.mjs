// A PostgreSQL of the tests' own, from Debian's package.

import { execFileSync, spawn } from "node:child_process";
import { chownSync, readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

async function freePort() {
  const probe = createServer();
  await new Promise((done) => probe.listen(0, "127.0.0.1", done));
  const { port } = probe.address();
  await new Promise((done) => probe.close(done));
  return port;
}

export class Postgres {
  static async start() {
    const cluster = new Postgres();
    const versions = "/usr/lib/postgresql";
    const newest = readdirSync(versions).sort((a, b) => Number(b) - Number(a))[0];
    const bin = path.join(versions, newest, "bin");
    // It does not run as root.
    const isRoot = process.getuid() === 0;
    const id = (what) => Number(execFileSync("id", [what, "postgres"], { encoding: "utf8" }));
    const as = isRoot ? { uid: id("-u"), gid: id("-g") } : {};
    cluster.folder = await mkdtemp(path.join(tmpdir(), "ferrolho-browser-pg-"));
    if (isRoot) chownSync(cluster.folder, as.uid, as.gid);
    const data = path.join(cluster.folder, "data");
    const port = await freePort();
    execFileSync(path.join(bin, "initdb"), ["-D", data, "-U", "postgres", "--auth=trust", "--no-sync"], { ...as, cwd: "/", stdio: "ignore" });
    const settings = ["-D", data, "-p", port, "-h", "127.0.0.1", "-k", cluster.folder];
    cluster.child = spawn(path.join(bin, "postgres"), settings, { ...as, cwd: "/", stdio: "ignore" });
    cluster.url = `postgres://postgres@127.0.0.1:${port}/postgres`;
    for (let tries = 0; ; tries += 1) {
      try {
        execFileSync(path.join(bin, "pg_isready"), ["-h", "127.0.0.1", "-p", port], { stdio: "ignore" });
        return cluster;
      } catch (error) {
        if (tries === 200) throw error;
        await new Promise((done) => setTimeout(done, 100));
      }
    }
  }

  async remove() {
    const ended = new Promise((done) => this.child.once("exit", done));
    this.child.kill("SIGQUIT");
    await ended;
    await rm(this.folder, { recursive: true });
  }
}
