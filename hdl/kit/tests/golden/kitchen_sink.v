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
  output wire [8:0] ones,
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
  wire [3:0] n1 = {1'd0, {1'd0, {1'd0, wide[0]} + {1'd0, wide[1]}} + {1'd0, {1'd0, wide[2]} + {1'd0, wide[3]}}} + {1'd0,
      {1'd0, {1'd0, wide[4]} + {1'd0, wide[5]}} + {1'd0, {1'd0, wide[6]} + {1'd0, wide[7]}}};
  wire [3:0] n2 = {1'd0, {1'd0, {1'd0, wide[8]} + {1'd0, wide[9]}} + {1'd0, {1'd0, wide[10]} + {1'd0, wide[11]}}} +
      {1'd0, {1'd0, {1'd0, wide[12]} + {1'd0, wide[13]}} + {1'd0, {1'd0, wide[14]} + {1'd0, wide[15]}}};
  wire [3:0] n3 = {1'd0, {1'd0, {1'd0, wide[16]} + {1'd0, wide[17]}} + {1'd0, {1'd0, wide[18]} + {1'd0, wide[19]}}} +
      {1'd0, {1'd0, {1'd0, wide[20]} + {1'd0, wide[21]}} + {1'd0, {1'd0, wide[22]} + {1'd0, wide[23]}}};
  wire [3:0] n4 = {1'd0, {1'd0, {1'd0, wide[24]} + {1'd0, wide[25]}} + {1'd0, {1'd0, wide[26]} + {1'd0, wide[27]}}} +
      {1'd0, {1'd0, {1'd0, wide[28]} + {1'd0, wide[29]}} + {1'd0, {1'd0, wide[30]} + {1'd0, wide[31]}}};
  wire [3:0] n5 = {1'd0, {1'd0, {1'd0, wide[32]} + {1'd0, wide[33]}} + {1'd0, {1'd0, wide[34]} + {1'd0, wide[35]}}} +
      {1'd0, {1'd0, {1'd0, wide[36]} + {1'd0, wide[37]}} + {1'd0, {1'd0, wide[38]} + {1'd0, wide[39]}}};
  wire [3:0] n6 = {1'd0, {1'd0, {1'd0, wide[40]} + {1'd0, wide[41]}} + {1'd0, {1'd0, wide[42]} + {1'd0, wide[43]}}} +
      {1'd0, {1'd0, {1'd0, wide[44]} + {1'd0, wide[45]}} + {1'd0, {1'd0, wide[46]} + {1'd0, wide[47]}}};
  wire [3:0] n7 = {1'd0, {1'd0, {1'd0, wide[48]} + {1'd0, wide[49]}} + {1'd0, {1'd0, wide[50]} + {1'd0, wide[51]}}} +
      {1'd0, {1'd0, {1'd0, wide[52]} + {1'd0, wide[53]}} + {1'd0, {1'd0, wide[54]} + {1'd0, wide[55]}}};
  wire [3:0] n8 = {1'd0, {1'd0, {1'd0, wide[56]} + {1'd0, wide[57]}} + {1'd0, {1'd0, wide[58]} + {1'd0, wide[59]}}} +
      {1'd0, {1'd0, {1'd0, wide[60]} + {1'd0, wide[61]}} + {1'd0, {1'd0, wide[62]} + {1'd0, wide[63]}}};
  wire [3:0] n9 = {1'd0, {1'd0, {1'd0, wide[64]} + {1'd0, wide[65]}} + {1'd0, {1'd0, wide[66]} + {1'd0, wide[67]}}} +
      {1'd0, {1'd0, {1'd0, wide[68]} + {1'd0, wide[69]}} + {1'd0, {1'd0, wide[70]} + {1'd0, wide[71]}}};
  wire [3:0] n10 = {1'd0, {1'd0, {1'd0, wide[72]} + {1'd0, wide[73]}} + {1'd0, {1'd0, wide[74]} + {1'd0, wide[75]}}} +
      {1'd0, {1'd0, {1'd0, wide[76]} + {1'd0, wide[77]}} + {1'd0, {1'd0, wide[78]} + {1'd0, wide[79]}}};
  wire [3:0] n11 = {1'd0, {1'd0, {1'd0, wide[80]} + {1'd0, wide[81]}} + {1'd0, {1'd0, wide[82]} + {1'd0, wide[83]}}} +
      {1'd0, {1'd0, {1'd0, wide[84]} + {1'd0, wide[85]}} + {1'd0, {1'd0, wide[86]} + {1'd0, wide[87]}}};
  wire [3:0] n12 = {1'd0, {1'd0, {1'd0, wide[88]} + {1'd0, wide[89]}} + {1'd0, {1'd0, wide[90]} + {1'd0, wide[91]}}} +
      {1'd0, {1'd0, {1'd0, wide[92]} + {1'd0, wide[93]}} + {1'd0, {1'd0, wide[94]} + {1'd0, wide[95]}}};
  wire [3:0] n13 = {1'd0, {1'd0, {1'd0, wide[100]} + {1'd0, wide[101]}} + {1'd0, {1'd0, wide[102]} + {1'd0,
      wide[103]}}};
  wire [3:0] n14 = {1'd0, {1'd0, {1'd0, wide[96]} + {1'd0, wide[97]}} + {1'd0, {1'd0, wide[98]} + {1'd0, wide[99]}}} +
      n13;
  wire [3:0] n15 = {1'd0, {1'd0, {1'd0, wide[104]} + {1'd0, wide[105]}} + {1'd0, {1'd0, wide[106]} + {1'd0,
      wide[107]}}};
  wire [3:0] n16 = {1'd0, {1'd0, {1'd0, wide[108]} + {1'd0, wide[109]}} + {1'd0, {1'd0, wide[110]} + {1'd0,
      wide[111]}}};
  wire [3:0] n17 = {1'd0, {1'd0, {1'd0, wide[112]} + {1'd0, wide[113]}} + {1'd0, {1'd0, wide[114]} + {1'd0,
      wide[115]}}};
  wire [3:0] n18 = {1'd0, {1'd0, {1'd0, wide[116]} + {1'd0, wide[117]}} + {1'd0, {1'd0, wide[118]} + {1'd0,
      wide[119]}}};
  wire [3:0] n19 = {1'd0, {1'd0, {1'd0, wide[120]} + {1'd0, wide[121]}} + {1'd0, {1'd0, wide[122]} + {1'd0,
      wide[123]}}};
  wire [3:0] n20 = {1'd0, {1'd0, {1'd0, wide[124]} + {1'd0, wide[125]}} + {1'd0, {1'd0, wide[126]} + {1'd0,
      wide[127]}}};
  wire [3:0] n21 = {1'd0, {1'd0, {1'd0, wide[128]} + {1'd0, wide[129]}} + {1'd0, {1'd0, wide[130]} + {1'd0,
      wide[131]}}};
  wire [3:0] n22 = {1'd0, {1'd0, {1'd0, wide[132]} + {1'd0, wide[133]}} + {1'd0, {1'd0, wide[134]} + {1'd0,
      wide[135]}}};
  wire [3:0] n23 = {1'd0, {1'd0, {1'd0, wide[136]} + {1'd0, wide[137]}} + {1'd0, {1'd0, wide[138]} + {1'd0,
      wide[139]}}};
  wire [3:0] n24 = {1'd0, {1'd0, {1'd0, wide[140]} + {1'd0, wide[141]}} + {1'd0, {1'd0, wide[142]} + {1'd0,
      wide[143]}}};
  wire [3:0] n25 = {1'd0, {1'd0, {1'd0, wide[144]} + {1'd0, wide[145]}} + {1'd0, {1'd0, wide[146]} + {1'd0,
      wide[147]}}};
  wire [3:0] n26 = {1'd0, {1'd0, {1'd0, wide[148]} + {1'd0, wide[149]}} + {1'd0, {1'd0, wide[150]} + {1'd0,
      wide[151]}}};
  wire [3:0] n27 = {1'd0, {1'd0, {1'd0, wide[152]} + {1'd0, wide[153]}} + {1'd0, {1'd0, wide[154]} + {1'd0,
      wide[155]}}};
  wire [3:0] n28 = {1'd0, {1'd0, {1'd0, wide[156]} + {1'd0, wide[157]}} + {1'd0, {1'd0, wide[158]} + {1'd0,
      wide[159]}}};
  wire [3:0] n29 = {1'd0, {1'd0, {1'd0, wide[160]} + {1'd0, wide[161]}} + {1'd0, {1'd0, wide[162]} + {1'd0,
      wide[163]}}};
  wire [3:0] n30 = {1'd0, {1'd0, {1'd0, wide[164]} + {1'd0, wide[165]}} + {1'd0, {1'd0, wide[166]} + {1'd0,
      wide[167]}}};
  wire [3:0] n31 = {1'd0, {1'd0, {1'd0, wide[168]} + {1'd0, wide[169]}} + {1'd0, {1'd0, wide[170]} + {1'd0,
      wide[171]}}};
  wire [3:0] n32 = {1'd0, {1'd0, {1'd0, wide[172]} + {1'd0, wide[173]}} + {1'd0, {1'd0, wide[174]} + {1'd0,
      wide[175]}}};
  wire [3:0] n33 = {1'd0, {1'd0, {1'd0, wide[176]} + {1'd0, wide[177]}} + {1'd0, {1'd0, wide[178]} + {1'd0,
      wide[179]}}};
  wire [3:0] n34 = {1'd0, {1'd0, {1'd0, wide[180]} + {1'd0, wide[181]}} + {1'd0, {1'd0, wide[182]} + {1'd0,
      wide[183]}}};
  wire [3:0] n35 = {1'd0, {1'd0, {1'd0, wide[184]} + {1'd0, wide[185]}} + {1'd0, {1'd0, wide[186]} + {1'd0,
      wide[187]}}};
  wire [3:0] n36 = {1'd0, {1'd0, {1'd0, wide[188]} + {1'd0, wide[189]}} + {1'd0, {1'd0, wide[190]} + {1'd0,
      wide[191]}}};
  wire [3:0] n37 = {1'd0, {1'd0, {1'd0, wide[192]} + {1'd0, wide[193]}} + {1'd0, {1'd0, wide[194]} + {1'd0,
      wide[195]}}};
  wire [3:0] n38 = {1'd0, {1'd0, {1'd0, wide[196]} + {1'd0, wide[197]}} + {1'd0, {1'd0, wide[198]} + {1'd0,
      wide[199]}}};
  wire [3:0] n39 = {1'd0, {1'd0, {1'd0, wide[200]} + {1'd0, wide[201]}} + {1'd0, {1'd0, wide[202]} + {1'd0,
      wide[203]}}};
  wire [3:0] n40 = {1'd0, {1'd0, {1'd0, wide[204]} + {1'd0, wide[205]}} + {1'd0, {1'd0, wide[206]} + {1'd0,
      wide[207]}}};
  wire [3:0] n41 = {1'd0, {1'd0, {1'd0, wide[208]} + {1'd0, wide[209]}} + {1'd0, {1'd0, wide[210]} + {1'd0,
      wide[211]}}};
  wire [3:0] n42 = {1'd0, {1'd0, {1'd0, wide[212]} + {1'd0, wide[213]}} + {1'd0, {1'd0, wide[214]} + {1'd0,
      wide[215]}}};
  wire [3:0] n43 = {1'd0, {1'd0, {1'd0, wide[216]} + {1'd0, wide[217]}} + {1'd0, {1'd0, wide[218]} + {1'd0,
      wide[219]}}};
  wire [3:0] n44 = {1'd0, {1'd0, {1'd0, wide[220]} + {1'd0, wide[221]}} + {1'd0, {1'd0, wide[222]} + {1'd0,
      wide[223]}}};
  wire [3:0] n45 = {1'd0, {1'd0, {1'd0, wide[224]} + {1'd0, wide[225]}} + {1'd0, {1'd0, wide[226]} + {1'd0,
      wide[227]}}};
  wire [3:0] n46 = {1'd0, {1'd0, {1'd0, wide[228]} + {1'd0, wide[229]}} + {1'd0, {1'd0, wide[230]} + {1'd0,
      wide[231]}}};
  wire [3:0] n47 = {1'd0, {1'd0, {1'd0, wide[232]} + {1'd0, wide[233]}} + {1'd0, {1'd0, wide[234]} + {1'd0,
      wide[235]}}};
  wire [3:0] n48 = {1'd0, {1'd0, {1'd0, wide[236]} + {1'd0, wide[237]}} + {1'd0, {1'd0, wide[238]} + {1'd0,
      wide[239]}}};
  wire [3:0] n49 = {1'd0, {1'd0, {1'd0, wide[240]} + {1'd0, wide[241]}} + {1'd0, {1'd0, wide[242]} + {1'd0,
      wide[243]}}};
  wire [3:0] n50 = {1'd0, {1'd0, {1'd0, wide[244]} + {1'd0, wide[245]}} + {1'd0, {1'd0, wide[246]} + {1'd0,
      wide[247]}}};
  wire [3:0] n51 = {1'd0, {1'd0, {1'd0, wide[248]} + {1'd0, wide[249]}} + {1'd0, {1'd0, wide[250]} + {1'd0,
      wide[251]}}};
  wire [3:0] n52 = {1'd0, {1'd0, {1'd0, wide[252]} + {1'd0, wide[253]}} + {1'd0, {1'd0, wide[254]} + {1'd0,
      wide[255]}}};
  wire [6:0] n53 = {1'd0, {1'd0, {1'd0, n1} + {1'd0, n2}} + {1'd0, {1'd0, n3} + {1'd0, n4}}} + {1'd0, {1'd0, {1'd0, n5}
      + {1'd0, n6}} + {1'd0, {1'd0, n7} + {1'd0, n8}}};
  wire [6:0] n54 = {1'd0, {1'd0, {1'd0, n9} + {1'd0, n10}} + {1'd0, {1'd0, n11} + {1'd0, n12}}} + {1'd0, {1'd0, {1'd0,
      n14} + {1'd0, n15 + n16}} + {1'd0, {1'd0, n17 + n18} + {1'd0, n19 + n20}}};
  wire [6:0] n55 = {1'd0, {1'd0, {1'd0, n21 + n22} + {1'd0, n23 + n24}} + {1'd0, {1'd0, n25 + n26} + {1'd0, n27 +
      n28}}};
  wire [6:0] n56 = {1'd0, {1'd0, {1'd0, n29 + n30} + {1'd0, n31 + n32}} + {1'd0, {1'd0, n33 + n34} + {1'd0, n35 +
      n36}}};
  wire [6:0] n57 = {1'd0, {1'd0, {1'd0, n37 + n38} + {1'd0, n39 + n40}} + {1'd0, {1'd0, n41 + n42} + {1'd0, n43 +
      n44}}};
  wire [6:0] n58 = {1'd0, {1'd0, {1'd0, n45 + n46} + {1'd0, n47 + n48}} + {1'd0, {1'd0, n49 + n50} + {1'd0, n51 +
      n52}}};
  reg  [255:0] table_;
  wire bit_ = table_[at];
  reg  [3:0] wire_;
  reg  [3:0] level;
  wire [8:0] sum = {1'd0, lane_0} + {1'd0, lane_1};
  wire top = sum[8] & (lane_2 < lane_3) & bit_;
  wire [255:0] shifted = (wide << at) | {3'd0, wide[255:3]} | {wide[5:0], 250'd0};
  wire [255:0] n59 = wide + shifted;
  wire [19:0] sliced = n59[29:10];
  wire [255:0] n60 = {from_bram[99:0] ^ from_bram[255:156], from_old, from_rom[59:0], shifted[60:0], sliced, top, level,
      num_valid & num_ready};
  reg  flag0_seen;
  reg  flag1_seen;
  wire [7:0] u_cell_d;
  wire [7:0] u_cell_q;
  reg  [7:0] kept;
  assign flags_0_done = flag0_seen;
  assign flags_1_done = flag1_seen;
  assign num_ready = (&num_data) | (num_data == 5'd3);
  assign out = n60;
  assign picked = picked_1 ^ also ^ from_lut ^ from_two;
  assign ones = {1'd0, {1'd0, n53} + {1'd0, n54}} + {1'd0, {1'd0, n55 + n56} + {1'd0, n57 + n58}};
  assign reg_type = phase;
  always @* begin
    case (sel)
      2'd0: begin
        wire_ = 4'd1;
      end
      2'd1: begin
        wire_ = 4'd2;
      end
      2'd2: begin
        wire_ = 4'd4;
      end
      default: begin // 2'd3
        wire_ = 4'd8;
      end
    endcase
  end
  always @* begin
    level = 4'd0;
    if (sel > 2'd1) begin
      level = wire_;
    end else if (sel == 2'd1) begin
    end else begin
      if (we) begin
        level[2:1] = sel;
      end
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
  always @(posedge clk) begin
    if (1'd1) begin
      if ((we && addr == addr)) from_bram <= from_bram_random[255:0];
      else from_bram <= bram[addr];
    end
  end
`else
`ifdef FORMAL
  (* anyseq *) reg [255:0] from_bram_any;
  always @(posedge clk) begin
    if (1'd1) begin
      if ((we && addr == addr)) from_bram <= from_bram_any;
      else from_bram <= bram[addr];
    end
  end
`else
  always @(posedge clk) begin
    if (1'd1) from_bram <= bram[addr];
  end
`endif
`endif
  always @(posedge clk) begin
    if (we) begin
      old[addr] <= {1'd0, at};
    end
  end
  always @(posedge clk) begin
    if (we) from_old <= old[addr];
  end
  always @(posedge clk) begin
    if (we) begin
      lut[addr] <= at;
    end
  end
  always @(posedge clk) begin
    if (we) begin
      two[sel] <= lane_0;
    end
    if (flags_0_go) begin
      two[sel] <= lane_1;
    end
  end
  always @(posedge clk) begin
    if (we) from_rom <= rom[sel];
  end
  always @(posedge clk) begin
    case (phase)
      PHASE_PARK: begin
        phase <= PHASE_ADMIT;
      end
      PHASE_ADMIT: begin
        if (we) begin
          phase <= PHASE_COMPLETE;
        end
      end
      default: begin
        phase <= PHASE_PARK;
      end
    endcase
    if (we) begin
      table_[at] <= ^strobe;
      table_[{sel, 6'd0} +: 64] <= wide[{sel, 6'd0} +: 64];
      table_[10:3] <= at;
    end
    if (flags_0_go) begin
      flag0_seen <= 1'd1;
    end
    if (flags_1_go) begin
      flag1_seen <= 1'd1;
    end
    kept <= u_cell_q;
    if (rst) begin
      phase <= PHASE_PARK;
      table_ <= 256'd0;
      flag0_seen <= 1'd0;
      flag1_seen <= 1'd0;
    end
  end
  wire _unused_ok = &{1'b0, from_bram[155:100], from_rom[69:60], sum[7:0], n59[9:0], n59[255:30], kept};
`ifdef WEIR_ASSERT
  // verilator lint_off UNUSEDSIGNAL
  reg [7:0] shadow [0:15];
  reg  [7:0] owner;
  wire [7:0] n61 = shadow[addr];
  reg  past_we;
  reg  past_valid;
  reg  [7:0] past_at;
  always @(posedge clk) begin
    if (we) begin
      shadow[addr] <= at;
    end
  end
  always @(posedge clk) begin
    if (we) begin
      owner <= at;
    end
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
      owner_known: assert ((owner == kept) | (n61 != owner));
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
    if (addr == any) begin
      watch <= 1'd1;
    end
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
