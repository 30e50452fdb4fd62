// fifo_pair: two FIFOs in a row.
// Written by weir-kit from Rust: edit that.
module fifo_pair (
  input  wire clk,
  // Synchronous reset.
  input  wire rst,
  // In.
  input  wire a_valid,
  // Slot of the command.
  input  wire [1:0] a_slot,
  // Blocks to move.
  input  wire [15:0] a_blocks,
  output wire a_ready,
  // Out.
  output wire z_valid,
  // Slot of the command.
  output wire [1:0] z_slot,
  // Blocks to move.
  output wire [15:0] z_blocks,
  input  wire z_ready
);
  wire u_first_push_valid;
  wire [1:0] u_first_push_slot;
  wire [15:0] u_first_push_blocks;
  wire u_first_push_ready;
  wire u_first_pop_valid;
  wire [1:0] u_first_pop_slot;
  wire [15:0] u_first_pop_blocks;
  wire u_first_pop_ready;
  wire [2:0] u_first_used;
  wire u_second_push_valid;
  wire [1:0] u_second_push_slot;
  wire [15:0] u_second_push_blocks;
  wire u_second_push_ready;
  wire u_second_pop_valid;
  wire [1:0] u_second_pop_slot;
  wire [15:0] u_second_pop_blocks;
  wire u_second_pop_ready;
  wire [2:0] u_second_used;
  assign a_ready = u_first_push_ready;
  assign z_valid = u_second_pop_valid;
  assign z_slot = u_second_pop_slot;
  assign z_blocks = u_second_pop_blocks;
  assign u_first_push_valid = a_valid;
  assign u_first_push_slot = a_slot;
  assign u_first_push_blocks = a_blocks;
  assign u_first_pop_ready = u_second_push_ready;
  assign u_second_push_valid = u_first_pop_valid;
  assign u_second_push_slot = u_first_pop_slot;
  assign u_second_push_blocks = u_first_pop_blocks;
  assign u_second_pop_ready = z_ready;
  fifo_4 u_first (
    .clk(clk),
    .rst(rst),
    .push_valid(u_first_push_valid),
    .push_slot(u_first_push_slot),
    .push_blocks(u_first_push_blocks),
    .push_ready(u_first_push_ready),
    .pop_valid(u_first_pop_valid),
    .pop_slot(u_first_pop_slot),
    .pop_blocks(u_first_pop_blocks),
    .pop_ready(u_first_pop_ready),
    .used(u_first_used)
  );
  fifo_4 u_second (
    .clk(clk),
    .rst(rst),
    .push_valid(u_second_push_valid),
    .push_slot(u_second_push_slot),
    .push_blocks(u_second_push_blocks),
    .push_ready(u_second_push_ready),
    .pop_valid(u_second_pop_valid),
    .pop_slot(u_second_pop_slot),
    .pop_blocks(u_second_pop_blocks),
    .pop_ready(u_second_pop_ready),
    .used(u_second_used)
  );
  wire _unused_ok = &{1'b0, u_first_used, u_second_used};
endmodule
