// kitchen_sink: one of everything that the generator can write.
// A second line.
// Written by weir-kit from Rust: edit that.
`ifdef FORMAL
`ifndef WEIR_ASSERT
`define WEIR_ASSERT
`endif
`endif
module kitchen_sink (
  input  wire clk,
  // Synchronous reset.
  input  wire rst,
  // Four lanes.
  input  wire [7:0] lane_0,
  input  wire [7:0] lane_1,
  input  wire [7:0] lane_2,
  input  wire [7:0] lane_3,
  // A wide word.
  input  wire [255:0] wide,
  // Which lane, bit, word.
  input  wire [1:0] sel,
  // Which bit.
  input  wire [7:0] at,
  // Address.
  input  wire [3:0] addr,
  // Write enable.
  input  wire we,
  // Byte enables.
  input  wire [31:0] strobe,
  // Do it.
  input  wire flags_0_go,
  // Done, the other way.
  output wire flags_0_done,
  // Do it.
  input  wire flags_1_go,
  // Done, the other way.
  output wire flags_1_done,
  // A bare stream.
  input  wire num_valid,
  input  wire [4:0] num_data,
  output wire num_ready,
  // Everything, mixed.
  output wire [255:0] out,
  // The lane.
  output wire [7:0] picked,
  // Set bits.
  output wire [5:0] ones,
  // Reserved words are only a trouble of whole names.
  output wire [2:0] reg_type
);
  localparam [2:0] PHASE_ADMIT = 3'd2;
  localparam [2:0] PHASE_COMPLETE = 3'd5;
  localparam [2:0] PHASE_PARK = 3'd1;
  (* ram_style = "block", no_rw_check *) reg [255:0] bram [0:15];
  (* ram_style = "block" *) reg [8:0] old [0:15];
  (* ram_style = "distributed" *) reg [7:0] lut [0:11];
  (* ram_style = "registers" *) reg [7:0] two [0:3];
  reg [69:0] rom [0:3];
  initial begin
    rom[0] = 70'd1;
    rom[1] = 70'h5ffffffffffffffff;
    rom[2] = 70'h123456789abc;
    rom[3] = 70'd0;
  end
  reg  [255:0] from_bram;
  reg  [8:0] from_old;
  wire [7:0] from_lut = lut[addr];
  wire [7:0] from_two = two[sel];
  reg  [69:0] from_rom;
  reg  [2:0] phase;
  reg  [7:0] picked_1;
  always @* begin
    case (sel)
      2'd0: picked_1 = lane_0;
      2'd1: picked_1 = lane_1;
      2'd2: picked_1 = lane_2;
      default: picked_1 = lane_3;
    endcase
  end
  wire [3:0] hot = 4'd1 << sel;
  wire [7:0] also = ({8{hot[0]}} & lane_0) | ({8{hot[1]}} & lane_1) | ({8{hot[2]}} & lane_2) | ({8{hot[3]}} & lane_3);
  wire [3:0] n1 = {1'd0, {1'd0, {1'd0, strobe[0]} + {1'd0, strobe[1]}} + {1'd0, {1'd0, strobe[2]} + {1'd0, strobe[3]}}};
  wire [3:0] n2 = {1'd0, {1'd0, {1'd0, strobe[4]} + {1'd0, strobe[5]}} + {1'd0, {1'd0, strobe[6]} + {1'd0, strobe[7]}}};
  wire [3:0] n3 = {1'd0, {1'd0, {1'd0, strobe[8]} + {1'd0, strobe[9]}} + {1'd0, {1'd0, strobe[10]} + {1'd0,
      strobe[11]}}};
  wire [3:0] n4 = {1'd0, {1'd0, {1'd0, strobe[12]} + {1'd0, strobe[13]}} + {1'd0, {1'd0, strobe[14]} + {1'd0,
      strobe[15]}}};
  wire [3:0] n5 = {1'd0, {1'd0, {1'd0, strobe[16]} + {1'd0, strobe[17]}} + {1'd0, {1'd0, strobe[18]} + {1'd0,
      strobe[19]}}};
  wire [3:0] n6 = {1'd0, {1'd0, {1'd0, strobe[20]} + {1'd0, strobe[21]}} + {1'd0, {1'd0, strobe[22]} + {1'd0,
      strobe[23]}}};
  wire [3:0] n7 = {1'd0, {1'd0, {1'd0, strobe[24]} + {1'd0, strobe[25]}} + {1'd0, {1'd0, strobe[26]} + {1'd0,
      strobe[27]}}};
  wire [3:0] n8 = {1'd0, {1'd0, {1'd0, strobe[28]} + {1'd0, strobe[29]}} + {1'd0, {1'd0, strobe[30]} + {1'd0,
      strobe[31]}}};
  reg  [255:0] table_;
  wire bit_ = table_[at];
  reg  [3:0] wire_;
  reg  [3:0] level;
  wire [8:0] sum = {1'd0, lane_0} + {1'd0, lane_1};
  wire top = sum[8] & (lane_2 < lane_3) & bit_;
  wire [255:0] shifted = (wide << at) | {3'd0, wide[255:3]} | {wide[5:0], 250'd0};
  wire [255:0] n9 = wide + shifted;
  wire [19:0] sliced = n9[29:10];
  reg  flag0_seen;
  reg  flag1_seen;
  wire [7:0] u_cell_d;
  wire [7:0] u_cell_q;
  reg  [7:0] kept;
  assign flags_0_done = flag0_seen;
  assign flags_1_done = flag1_seen;
  assign num_ready = (&num_data) | (num_data == 5'd3);
  assign out = {from_bram[99:0] ^ from_bram[255:156], from_old, from_rom[59:0], shifted[60:0], sliced, top, level,
      num_valid & num_ready};
  assign picked = picked_1 ^ also ^ from_lut ^ from_two;
  assign ones = {1'd0, {1'd0, n1 + n2} + {1'd0, n3 + n4}} + {1'd0, {1'd0, n5 + n6} + {1'd0, n7 + n8}};
  assign reg_type = phase;
  always @* begin
    case (sel)
      2'd0: wire_ = 4'd1;
      2'd1: wire_ = 4'd2;
      2'd2: wire_ = 4'd4;
      /* 2'd3 */ default: wire_ = 4'd8;
    endcase
  end
  always @* begin
    level = 4'd0;
    if (sel > 2'd1) begin
      level = wire_;
    end else if (sel == 2'd1) begin
    end else begin
      if (we) level[2:1] = sel;
    end
  end
  assign u_cell_d = at;
  vendor_cell u_cell (
    .clk(clk),
    .rst(rst),
    .d(u_cell_d),
    .q(u_cell_q)
  );
  always @(posedge clk) begin
    if (we) begin
      if (strobe[0]) bram[addr][7:0] <= wide[7:0];
      if (strobe[1]) bram[addr][15:8] <= wide[15:8];
      if (strobe[2]) bram[addr][23:16] <= wide[23:16];
      if (strobe[3]) bram[addr][31:24] <= wide[31:24];
      if (strobe[4]) bram[addr][39:32] <= wide[39:32];
      if (strobe[5]) bram[addr][47:40] <= wide[47:40];
      if (strobe[6]) bram[addr][55:48] <= wide[55:48];
      if (strobe[7]) bram[addr][63:56] <= wide[63:56];
      if (strobe[8]) bram[addr][71:64] <= wide[71:64];
      if (strobe[9]) bram[addr][79:72] <= wide[79:72];
      if (strobe[10]) bram[addr][87:80] <= wide[87:80];
      if (strobe[11]) bram[addr][95:88] <= wide[95:88];
      if (strobe[12]) bram[addr][103:96] <= wide[103:96];
      if (strobe[13]) bram[addr][111:104] <= wide[111:104];
      if (strobe[14]) bram[addr][119:112] <= wide[119:112];
      if (strobe[15]) bram[addr][127:120] <= wide[127:120];
      if (strobe[16]) bram[addr][135:128] <= wide[135:128];
      if (strobe[17]) bram[addr][143:136] <= wide[143:136];
      if (strobe[18]) bram[addr][151:144] <= wide[151:144];
      if (strobe[19]) bram[addr][159:152] <= wide[159:152];
      if (strobe[20]) bram[addr][167:160] <= wide[167:160];
      if (strobe[21]) bram[addr][175:168] <= wide[175:168];
      if (strobe[22]) bram[addr][183:176] <= wide[183:176];
      if (strobe[23]) bram[addr][191:184] <= wide[191:184];
      if (strobe[24]) bram[addr][199:192] <= wide[199:192];
      if (strobe[25]) bram[addr][207:200] <= wide[207:200];
      if (strobe[26]) bram[addr][215:208] <= wide[215:208];
      if (strobe[27]) bram[addr][223:216] <= wide[223:216];
      if (strobe[28]) bram[addr][231:224] <= wide[231:224];
      if (strobe[29]) bram[addr][239:232] <= wide[239:232];
      if (strobe[30]) bram[addr][247:240] <= wide[247:240];
      if (strobe[31]) bram[addr][255:248] <= wide[255:248];
    end
  end
`ifdef WEIR_RANDOM_COLLISION
  // verilator lint_off UNUSEDSIGNAL
  reg [255:0] from_bram_random;
  // verilator lint_on UNUSEDSIGNAL
  always @(posedge clk) from_bram_random <= {$urandom, $urandom, $urandom, $urandom, $urandom, $urandom, $urandom, $urandom};
  wire from_bram_hit = we && addr == addr;
  always @(posedge clk) from_bram <= from_bram_hit ? from_bram_random[255:0] : bram[addr];
`else
`ifdef FORMAL
  (* anyseq *) reg [255:0] from_bram_any;
  wire from_bram_hit = we && addr == addr;
  always @(posedge clk) from_bram <= from_bram_hit ? from_bram_any : bram[addr];
`else
  always @(posedge clk) from_bram <= bram[addr];
`endif
`endif
  always @(posedge clk) begin
    if (we) old[addr] <= {1'd0, at};
  end
  always @(posedge clk) if (we) from_old <= old[addr];
  always @(posedge clk) begin
    if (we) lut[addr] <= at;
  end
  always @(posedge clk) begin
    if (we) two[sel] <= lane_0;
    if (flags_0_go) two[sel] <= lane_1;
  end
  always @(posedge clk) if (we) from_rom <= rom[sel];
  always @(posedge clk) begin
    case (phase)
      PHASE_PARK: phase <= PHASE_ADMIT;
      PHASE_ADMIT: if (we) phase <= PHASE_COMPLETE;
      default: phase <= PHASE_PARK;
    endcase
    if (we) begin
      table_[at] <= ^strobe;
      table_[{sel, 6'd0} +: 64] <= wide[{sel, 6'd0} +: 64];
      table_[10:3] <= at;
    end
    if (flags_0_go) flag0_seen <= 1'd1;
    if (flags_1_go) flag1_seen <= 1'd1;
    kept <= u_cell_q;
    if (rst) begin
      phase <= PHASE_PARK;
      table_ <= 256'd0;
      flag0_seen <= 1'd0;
      flag1_seen <= 1'd0;
    end
  end
  wire _unused_ok = &{1'b0, from_bram[155:100], from_rom[69:60], sum[7:0], n9[9:0], n9[255:30], kept};
`ifdef WEIR_ASSERT
  // verilator lint_off UNUSEDSIGNAL
  reg [7:0] shadow [0:15];
  reg  [7:0] owner;
  wire [7:0] n10 = shadow[addr];
  reg  past_we;
  reg  past_valid;
  reg  [7:0] past_at;
  always @(posedge clk) begin
    if (we) shadow[addr] <= at;
  end
  always @(posedge clk) begin
    if (we) owner <= at;
    past_we <= we;
    past_valid <= 1'd1;
    past_at <= at;
    if (rst) begin
      owner <= 8'd0;
      past_valid <= 1'd0;
    end
  end
  always @(posedge clk) begin
    if (!rst) begin
      owner_known: assert ((owner == kept) | (n10 != owner));
      if (we) begin
        case (sel)
          2'd2: begin
            past_in_when: assert (~past_valid | (past_at == at) | we);
          end
          default: ;
        endcase
      end
      phase_known: assume ((phase == PHASE_PARK) | (phase != 3'd3));
    end
  end
  // verilator lint_on UNUSEDSIGNAL
`endif
`ifdef FORMAL
  // The first cycle is a reset.
  reg _first = 1'b1;
  always @(posedge clk) _first <= 1'b0;
  always @* if (_first) assume (rst);
  (* anyconst *) reg [3:0] any;
  reg  watch;
  (* anyseq *) reg anyseq;
  always @(posedge clk) begin
    if (addr == any) watch <= 1'd1;
    if (rst) begin
      watch <= 1'd0;
    end
  end
  always @(posedge clk) begin
    if (!rst) begin
      watched: assert (~watch | past_we | anyseq);
      if (we) begin
        case (sel)
          2'd2: ;
          default: begin
            other: cover (at == 8'd7);
          end
        endcase
      end
    end
  end
`endif
endmodule
