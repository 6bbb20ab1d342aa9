// A client as `prisma generate` writes it for a schema without models. That command downloads an engine.
import { PrismaPg } from "@prisma/adapter-pg";
import * as runtime from "@prisma/client/runtime/client";

const compiler = "@prisma/client/runtime/query_compiler_fast_bg.postgresql";
const PrismaClient = runtime.getPrismaClient({
  previewFeatures: [], clientVersion: "7.10.0", activeProvider: "postgresql",
  inlineSchema: 'generator client {\n provider = "prisma-client"\n}\ndatasource db {\n provider = "postgresql"\n}\n',
  runtimeDataModel: { models: {}, enums: {}, types: {} },
  parameterizationSchema: { strings: [], graph: Buffer.alloc(8).toString("base64") },
  compilerWasm: {
    getRuntime: () => import(`${compiler}.mjs`),
    getQueryCompilerWasmModule: async () =>
      new WebAssembly.Module(Buffer.from((await import(`${compiler}.wasm-base64.mjs`)).wasm, "base64")),
    importName: "./query_compiler_fast_bg.js",
  },
});

export const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });
