// fifo_4: keeps commands in order.
// Written by weir-kit from Rust: edit that.
`ifdef FORMAL
`ifndef WEIR_ASSERT
`define WEIR_ASSERT
`endif
`endif
module fifo_4 (
  input  wire clk,
  // Synchronous reset.
  input  wire rst,
  // Commands to keep.
  input  wire push_valid,
  // Slot of the command.
  input  wire [1:0] push_slot,
  // Blocks to move.
  input  wire [15:0] push_blocks,
  output wire push_ready,
  // The oldest command.
  output wire pop_valid,
  // Slot of the command.
  output wire [1:0] pop_slot,
  // Blocks to move.
  output wire [15:0] pop_blocks,
  input  wire pop_ready,
  // Commands held.
  output wire [2:0] used
);
  localparam [1:0] STATE_EMPTY = 2'd0;
  localparam [1:0] STATE_FULL = 2'd2;
  localparam [1:0] STATE_SOME = 2'd1;
  (* ram_style = "distributed" *) reg [17:0] store [0:3];
  reg  [1:0] head;
  reg  [1:0] tail;
  reg  [2:0] count;
  reg  [1:0] state;
  wire push = push_valid & push_ready;
  wire pop = pop_valid & pop_ready;
  wire [17:0] n1 = store[head];
  assign push_ready = state != STATE_FULL;
  assign pop_valid = state != STATE_EMPTY;
  assign pop_slot = n1[1:0];
  assign pop_blocks = n1[17:2];
  assign used = count;
  always @(posedge clk) begin
    if (push) store[tail] <= {push_blocks, push_slot};
  end
  always @(posedge clk) begin
    if (push) tail <= tail + 2'd1;
    if (pop) head <= head + 2'd1;
    // Both at once leave the count alone.
    if (push & ~pop) begin
      count <= count + 3'd1;
      state <= (count == 3'd3) ? STATE_FULL : STATE_SOME;
    end else if (pop & ~push) begin
      count <= count - 3'd1;
      state <= (count == 3'd1) ? STATE_EMPTY : STATE_SOME;
    end
    if (rst) begin
      head <= 2'd0;
      tail <= 2'd0;
      count <= 3'd0;
      state <= STATE_EMPTY;
    end
  end
`ifdef WEIR_ASSERT
  // verilator lint_off UNUSEDSIGNAL
  wire n2 = state == STATE_FULL;
  wire [18:0] n3 = {push_slot, push_blocks, push_valid};
  reg  past_valid;
  reg  past;
  reg  [18:0] past_1;
  wire [18:0] n4 = {pop_slot, pop_blocks, pop_valid};
  reg  past_valid_1;
  reg  past_2;
  reg  [18:0] past_3;
  always @(posedge clk) begin
    past_valid <= 1'd1;
    past <= push_valid & ~push_ready;
    past_1 <= n3;
    past_valid_1 <= 1'd1;
    past_2 <= pop_valid & ~pop_ready;
    past_3 <= n4;
    if (rst) begin
      past_valid <= 1'd0;
      past_valid_1 <= 1'd0;
    end
  end
  always @(posedge clk) begin
    if (!rst) begin
      count_in_range: assert (count <= 3'd4);
      state_agrees: assert (n2 == (count == 3'd4));
      push_stable: assume (~(past_valid & past) | (past_1 == n3));
      pop_stable: assert (~(past_valid_1 & past_2) | (past_3 == n4));
    end
  end
  // verilator lint_on UNUSEDSIGNAL
`endif
`ifdef FORMAL
  // The first cycle is a reset.
  reg _first = 1'b1;
  always @(posedge clk) _first <= 1'b0;
  always @* if (_first) assume (rst);
  always @(posedge clk) begin
    if (!rst) begin
      gets_full: cover (n2);
    end
  end
`endif
endmodule
